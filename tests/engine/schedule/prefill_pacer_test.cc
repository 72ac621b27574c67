#include "engine/schedule/prefill_pacer.h"

#include <gtest/gtest.h>

#include <functional>

namespace moe {
namespace {

// Runs steps of 8 decoding sequences against a machine that takes `seconds(prefill)`; returns the last step's time over
// that of decoding alone.
double Settled(PrefillPacer& pacer, const std::function<double(int64_t)>& seconds) {
  for (int i = 0; i < 20; ++i) pacer.Observe(8, 0, seconds(0));
  for (int i = 0; i < 50; ++i) {
    const int64_t chunk = pacer.Allowance(8, 1);
    pacer.Observe(8, chunk, seconds(chunk));
  }
  return seconds(pacer.Allowance(8, 1)) / seconds(0);
}

TEST(PrefillPacerTest, SettlesBelowTheSlowdown) {
  PrefillPacer linear(1.5, 512);
  EXPECT_NEAR(Settled(linear, [](int64_t rows) { return 0.1 + 0.001 * static_cast<double>(rows); }), 1.4, 0.05);
  // Experts: the first rows cost most, as each makes others be read.
  PrefillPacer concave(1.5, 512);
  EXPECT_NEAR(Settled(concave,
                      [](int64_t rows) {
                        const auto r = static_cast<double>(rows);
                        return 0.06 + 0.05 * r / (r + 30) + 0.0002 * r;
                      }),
              1.4, 0.05);
}

TEST(PrefillPacerTest, FollowsAMachineThatSlowsDown) {
  PrefillPacer pacer(1.5, 512);
  Settled(pacer, [](int64_t rows) { return 0.1 + 0.0005 * static_cast<double>(rows); });
  EXPECT_NEAR(Settled(pacer, [](int64_t rows) { return 0.1 + 0.002 * static_cast<double>(rows); }), 1.4, 0.05);
}

TEST(PrefillPacerTest, NeverBelowTheSmallestNorAboveTheLargest) {
  PrefillPacer pacer(1.5, 512);
  Settled(pacer, [](int64_t rows) { return 0.01 + static_cast<double>(rows); });
  EXPECT_EQ(pacer.Allowance(8, 1), PrefillPacer::kSmallest);
  PrefillPacer fast(1.5, 512);
  Settled(fast, [](int64_t) { return 0.1; });
  EXPECT_EQ(fast.Allowance(8, 1), 512);
  EXPECT_EQ(PrefillPacer(1.5, 8).Allowance(8, 1), 8) << "the step's own limit";
}

TEST(PrefillPacerTest, ABurstIsNotHeldBack) {
  PrefillPacer pacer(1.5, 512);
  Settled(pacer, [](int64_t rows) { return 0.01 + static_cast<double>(rows); });
  EXPECT_EQ(pacer.Allowance(8, 4), 512);
  EXPECT_EQ(pacer.Allowance(8, 3), PrefillPacer::kSmallest);
  EXPECT_EQ(pacer.Allowance(0, 1), 512) << "nobody to slow down";
}

TEST(PrefillPacerTest, NoLimit) {
  PrefillPacer pacer(0, 512);
  Settled(pacer, [](int64_t rows) { return 0.01 + static_cast<double>(rows); });
  EXPECT_EQ(pacer.Allowance(8, 1), 512);
}

TEST(PrefillPacerTest, AShortLastChunkTeachesNothingAboutLargerOnes) {
  PrefillPacer pacer(1.5, 512);
  const auto seconds = [](int64_t rows) { return 0.1 + 0.001 * static_cast<double>(rows); };
  Settled(pacer, seconds);
  const int64_t chunk = pacer.Allowance(8, 1);
  for (int i = 0; i < 20; ++i) pacer.Observe(8, 3, seconds(3));
  EXPECT_EQ(pacer.Allowance(8, 1), chunk);
}

TEST(PrefillPacerTest, OneSlowStepDoesNotRaiseTheBase) {
  PrefillPacer pacer(1.5, 512);
  const auto seconds = [](int64_t rows) { return 0.1 + 0.001 * static_cast<double>(rows); };
  Settled(pacer, seconds);
  pacer.Observe(8, 0, 100);
  for (int i = 0; i < 50; ++i) {
    const int64_t chunk = pacer.Allowance(8, 1);
    pacer.Observe(8, chunk, seconds(chunk));
  }
  EXPECT_LT(seconds(pacer.Allowance(8, 1)) / seconds(0), 1.9);
}

}  // namespace
}  // namespace moe
