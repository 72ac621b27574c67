// StallMeter: whether the thread that looks at deadlines was itself held up. Then the machine (or the process) stood
// still, and what did not arrive meanwhile says nothing about the others.
#ifndef MOE_SERVER_RANKS_STALL_METER_H_
#define MOE_SERVER_RANKS_STALL_METER_H_

namespace moe {

class StallMeter {
 public:
  // Ticks are meant to come every `interval` seconds; up to `tolerance` later is no stall.
  StallMeter(double now, double interval, double tolerance)
      : next_(now + interval), interval_(interval), tolerance_(tolerance) {}

  // Seconds by which deadlines move. now: seconds, never back.
  double Tick(double now) {
    const double late = now - next_;
    next_ = now + interval_;
    return late > tolerance_ ? late : 0;
  }

 private:
  double next_;
  const double interval_;
  const double tolerance_;
};

}  // namespace moe

#endif  // MOE_SERVER_RANKS_STALL_METER_H_
