#include "loaders/chat_template/evaluator_objects.h"

#include "loaders/chat_template/arguments.h"
#include "loaders/chat_template/operators.h"

namespace moe::chat {

bool Macro::GetAttribute(Runtime& rt, std::string_view name, Value* out) {
  if (name != "name") return false;
  *out = rt.View(macro_.name, true);
  return true;
}

bool Loop::Peek() {
  if (ahead_at_ < ahead_.size()) return true;
  while (position_ < items_.size()) {
    Value item = std::move(items_[position_++]);
    if (stmt_.filter != nullptr && !evaluator_.PassesFilter(stmt_, outer_, item)) continue;
    ahead_.clear();
    ahead_at_ = 0;
    ahead_.push_back(std::move(item));
    return true;
  }
  return false;
}

bool Loop::Next() {
  if (!Peek()) return false;
  previous_ = std::move(current_);
  current_ = std::move(ahead_[ahead_at_++]);
  ++index0_;
  return true;
}

int64_t Loop::Length() {
  if (stmt_.filter == nullptr) {
    return index0_ + 1 + static_cast<int64_t>(ahead_.size() - ahead_at_ + items_.size() - position_);
  }
  while (position_ < items_.size()) {
    Value item = std::move(items_[position_++]);
    if (evaluator_.PassesFilter(stmt_, outer_, item)) ahead_.push_back(std::move(item));
  }
  return index0_ + 1 + static_cast<int64_t>(ahead_.size() - ahead_at_);
}

bool Loop::GetAttribute(Runtime& rt, std::string_view name, Value* out) {
  if (name == "index")
    *out = Value::Int(index0_ + 1);
  else if (name == "index0")
    *out = Value::Int(index0_);
  else if (name == "first")
    *out = Value::Bool(index0_ == 0);
  else if (name == "last")
    *out = Value::Bool(!Peek());
  else if (name == "length")
    *out = Value::Int(Length());
  else if (name == "revindex")
    *out = Value::Int(Length() - index0_);
  else if (name == "revindex0")
    *out = Value::Int(Length() - index0_ - 1);
  else if (name == "depth")
    *out = Value::Int(depth0_ + 1);
  else if (name == "depth0")
    *out = Value::Int(depth0_);
  else if (name == "previtem")
    *out = index0_ == 0 ? rt.UndefinedBecause("there is no previous item") : previous_;
  else if (name == "nextitem")
    *out = Peek() ? ahead_[ahead_at_] : rt.UndefinedBecause("there is no next item");
  else if (name == "cycle")
    *out = rt.NewFunction("cycle", Cycle, Value::Of(this));
  else if (name == "changed")
    *out = rt.NewFunction("changed", Changed, Value::Of(this));
  else
    return false;
  return true;
}

Value Loop::Cycle(Runtime& rt, const Value& self, Args& args) {
  if (args.positional.empty()) return rt.Fail("no items for cycling given");
  const auto at = static_cast<size_t>(self.As<Loop>()->index0_) % args.positional.size();
  return args.positional[at];
}

Value Loop::Changed(Runtime& rt, const Value& self, Args& args) {
  auto& last = self.As<Loop>()->changed_;
  bool same = last.has_value() && last->size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i) same = Equal(rt, (*last)[i], args.positional[i]);
  last = args.positional;
  return Value::Bool(!same);
}

Value Loop::Call(Runtime& rt, Args& args) {
  const Arguments a(rt, "loop", args, {"iterable"}, 1);
  if (!stmt_.recursive) return rt.Fail("The loop must have the 'recursive' marker to be called recursively.");
  return evaluator_.CallLoop(stmt_, outer_, a[0], depth0_ + 1);
}

}  // namespace moe::chat
