#include "server/output_assembler.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"

namespace moe {
namespace {

// Rows of routed experts beyond the kept tokens: each dropped token was made from one more row.
void DropRows(uint32_t dropped_tokens, OutputChunk* chunk) {
  if (chunk->expert_rows == 0) return;
  const size_t row_size = chunk->expert_ids.size() / chunk->expert_rows;
  chunk->expert_rows -= std::min(chunk->expert_rows, dropped_tokens);
  chunk->expert_ids.resize(chunk->expert_rows * row_size);
}

}  // namespace

OutputAssembler::OutputAssembler(const Tokenizer* tokenizer, const TextWanted& wanted, uint32_t num_choices)
    : show_text_(wanted.show), choices_(num_choices), unfinished_(num_choices) {
  if (!wanted.NeedsTokenizer()) return;
  MOE_CHECK(tokenizer != nullptr);
  for (Choice& choice : choices_) choice.text = std::make_unique<TextOutput>(*tokenizer, wanted.options);
}

Delta OutputAssembler::Take(OutputChunk chunk, bool* stop_found) {
  *stop_found = false;
  MOE_CHECK(chunk.choice < choices_.size()) << chunk.choice;
  Choice& choice = choices_[chunk.choice];
  Delta delta;
  delta.choice = chunk.choice;
  cached_prompt_tokens_ = std::max(cached_prompt_tokens_, chunk.cached_prompt_tokens);
  if (choice.finished) return delta;

  FinishReason finish = chunk.finish;
  std::string text;
  if (choice.text != nullptr) {
    const bool has_end = finish == FinishReason::kEos || finish == FinishReason::kStop;
    for (size_t i = 0; i < chunk.tokens.size() && !choice.text->stopped(); ++i) {
      text += choice.text->Push(chunk.tokens[i].id, has_end && i + 1 == chunk.tokens.size());
      if (!choice.text->stopped()) continue;
      const size_t kept = i + 1;  // the token that completes the match still belongs to the choice
      DropRows(static_cast<uint32_t>(chunk.tokens.size() - kept), &chunk);
      chunk.tokens.resize(kept);
      *stop_found = finish == FinishReason::kNone;
    }
    if (finish != FinishReason::kNone && !choice.text->stopped()) text += choice.text->Finish();
    if (choice.text->stopped()) {
      finish = FinishReason::kStop;
      delta.stop_match = choice.text->stop_match();
    }
  }
  if (show_text_) delta.text = std::move(text);
  generated_tokens_ += static_cast<uint32_t>(chunk.tokens.size());
  delta.tokens = std::move(chunk.tokens);
  delta.prompt_tokens = std::move(chunk.prompt_tokens);
  delta.expert_ids = std::move(chunk.expert_ids);
  delta.expert_rows = chunk.expert_rows;
  delta.finish = finish;
  if (finish != FinishReason::kNone) {
    choice.finished = true;
    --unfinished_;
  }
  return delta;
}

}  // namespace moe
