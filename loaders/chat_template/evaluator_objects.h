// The objects that a template meets and that run template code: macros and loops.
#ifndef MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_OBJECTS_H_
#define MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_OBJECTS_H_

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "loaders/chat_template/evaluator.h"

namespace moe::chat {

class Macro final : public Object {
 public:
  Macro(Evaluator& evaluator, const MacroDefinition& macro, Scope* closure)
      : evaluator_(evaluator), macro_(macro), closure_(closure) {}
  std::string_view type_name() const override { return "Macro"; }
  bool GetAttribute(Runtime& runtime, std::string_view name, Value* out) override;
  bool callable() const override { return true; }
  Value Call(Runtime&, Args& args) override { return evaluator_.CallMacro(macro_, closure_, args); }

 private:
  Evaluator& evaluator_;
  const MacroDefinition& macro_;
  Scope* closure_;
};

// The variable `loop`. The filter of the loop is applied as the loop goes, since it may depend on what the body does.
class Loop final : public Object {
 public:
  Loop(Evaluator& evaluator, const ForStmt& stmt, Scope* outer, std::vector<Value> items, int depth0)
      : evaluator_(evaluator), stmt_(stmt), outer_(outer), items_(std::move(items)), depth0_(depth0) {}

  // Goes to the next item; false at the end.
  bool Next();
  const Value& item() const { return current_; }

  std::string_view type_name() const override { return "LoopContext"; }
  bool GetAttribute(Runtime& runtime, std::string_view name, Value* out) override;
  bool callable() const override { return true; }
  Value Call(Runtime& runtime, Args& args) override;

 private:
  static Value Cycle(Runtime& runtime, const Value& self, Args& args);
  static Value Changed(Runtime& runtime, const Value& self, Args& args);
  // Finds the item after the current one, if there is one.
  bool Peek();
  int64_t Length();

  Evaluator& evaluator_;
  const ForStmt& stmt_;
  Scope* outer_;
  std::vector<Value> items_;  // Up to position_: used. Beyond: not filtered yet, but for next_.
  size_t position_ = 0;
  std::vector<Value> ahead_;  // Items that passed the filter and were not visited yet, in order; ahead_at_ is next.
  size_t ahead_at_ = 0;
  Value previous_, current_;
  int64_t index0_ = -1;
  int depth0_;
  std::optional<std::vector<Value>> changed_;
};

}  // namespace moe::chat

#endif  // MOE_LOADERS_CHAT_TEMPLATE_EVALUATOR_OBJECTS_H_
