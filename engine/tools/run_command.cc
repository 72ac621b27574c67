// `moe run`: a prompt in, text out, through the same engine as the server, without gRPC.
#include <condition_variable>
#include <cstdio>
#include <future>
#include <iostream>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>

#include "engine/core/engine.h"
#include "engine/text/text_output.h"
#include "engine/tools/commands.h"
#include "engine/tools/engine_flags.h"
#include "engine/tools/model_source.h"
#include "loaders/model_loader.h"

namespace moe {
namespace {

struct RunOptions {
  std::vector<std::string> positional;  // [MODEL] TEXT
  std::string model;
  bool chat = false;
  bool ids = false;
  bool quiet = false;
  int64_t max_new_tokens = 0;  // 0: the checkpoint's default, else 128
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  EngineOptions engine;
};

// Prints tokens as they come; Wait returns how it ended.
class PrintingSink : public ResponseSink {
 public:
  PrintingSink(const Tokenizer* tokenizer, TextOutputOptions text, std::function<void()> on_stop)
      : on_stop_(std::move(on_stop)) {
    if (tokenizer != nullptr) text_.emplace(*tokenizer, std::move(text));
  }

  void OnOutput(OutputChunk chunk) override {
    const bool ended = chunk.finish == FinishReason::kEos || chunk.finish == FinishReason::kStop;
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      ++tokens_;
      const int32_t id = chunk.tokens[i].id;
      if (text_) {
        Print(text_->Push(id, ended && i + 1 == chunk.tokens.size()));
        if (text_->stopped() && !stop_sent_) {
          stop_sent_ = true;
          on_stop_();
        }
      } else {
        Print(Cat(id, " "));
      }
    }
    if (chunk.finish != FinishReason::kNone && text_ && !text_->stopped()) Print(text_->Finish());
  }

  void OnDone(const Status& status, const RequestTimes& times) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    times_ = times;
    done_ = true;
    changed_.notify_all();
  }

  Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }
  const RequestTimes& times() const { return times_; }
  int64_t tokens() const { return tokens_; }

 private:
  static void Print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  std::optional<TextOutput> text_;
  std::function<void()> on_stop_;
  bool stop_sent_ = false;
  int64_t tokens_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // these three guarded by mutex_
  Status status_;
  RequestTimes times_;
};

StatusOr<std::vector<int32_t>> EncodePrompt(const LoadedModel& model, const std::string& text, bool chat) {
  if (model.tokenizer == nullptr) {
    return absl::FailedPreconditionError("this checkpoint has no tokenizer.json; give token ids with --ids");
  }
  if (!chat) return model.tokenizer->Encode(text, {});
  if (model.chat_template == nullptr) return absl::FailedPreconditionError("this checkpoint has no chat template");
  ChatRenderInput input;
  input.messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", text}}});
  MOE_ASSIGN_OR_RETURN(const std::vector<RenderedPiece> pieces, model.chat_template->Render(input));
  std::vector<Tokenizer::Span> spans;
  spans.reserve(pieces.size());
  for (const RenderedPiece& piece : pieces) spans.push_back({piece.text, piece.trusted});
  return model.tokenizer->EncodeSpans(spans, false);
}

StatusOr<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    char* end = nullptr;
    const int64_t id = std::strtoll(word.c_str(), &end, 10);
    if (*end != '\0' || id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return InvalidError("ids: \"", word, "\" is not a token id");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

SamplingParams ResolveSampling(const RunOptions& options, const GenerationConfig& config) {
  SamplingParams sampling;
  const bool greedy = config.do_sample.has_value() && !*config.do_sample;
  sampling.temperature =
      options.temperature.value_or(greedy ? 0.0f : static_cast<float>(config.temperature.value_or(1)));
  sampling.top_p = options.top_p.value_or(static_cast<float>(config.top_p.value_or(1)));
  sampling.top_k = options.top_k.value_or(static_cast<uint32_t>(config.top_k.value_or(0)));
  sampling.min_p = static_cast<float>(config.min_p.value_or(0));
  sampling.repetition_penalty = static_cast<float>(config.repetition_penalty.value_or(1));
  sampling.seed = options.seed.value_or(std::random_device{}());
  return sampling;
}

StatusOr<int> RunModel(const RunOptions& options, const std::string& directory, const std::string& text) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFiles> files, OpenModelSource(directory));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, LoadModel(*files, {}));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(std::move(model), options.engine, nullptr));
  const LoadedModel& loaded = engine->model();

  Request request;
  request.id = "run";
  MOE_ASSIGN_OR_RETURN(request.prompt, options.ids ? ParseIds(text) : EncodePrompt(loaded, text, options.chat));
  request.sampling = ResolveSampling(options, loaded.generation);
  request.max_new_tokens =
      options.max_new_tokens > 0 ? options.max_new_tokens : loaded.generation.max_new_tokens.value_or(128);
  if (!options.ignore_eos) request.eos_token_ids = loaded.eos_token_ids;

  // The handle is known only after Submit, when output may already be coming.
  auto handle = std::make_shared<std::promise<uint64_t>>();
  auto known = std::make_shared<std::shared_future<uint64_t>>(handle->get_future().share());
  Engine* raw = engine.get();
  auto sink = std::make_shared<PrintingSink>(options.ids ? nullptr : loaded.tokenizer.get(),
                                             TextOutputOptions{.stop = options.stop},
                                             [raw, known] { raw->StopChoice(known->get(), 0); });
  const auto prompt_tokens = request.prompt.size();
  MOE_ASSIGN_OR_RETURN(const uint64_t id, engine->Submit(std::move(request), sink));
  handle->set_value(id);
  MOE_RETURN_IF_ERROR(sink->Wait());
  std::cout << "\n";
  if (!options.quiet) {
    const double decode = sink->times().total_seconds - sink->times().time_to_first_token_seconds;
    char line[160];
    std::snprintf(line, sizeof(line),
                  "[%s, %s: %zu prompt tokens, first token after %.1f ms, %lld tokens, %.1f tokens/s]\n",
                  engine->info().backend.c_str(), engine->info().weight_dtype.c_str(), prompt_tokens,
                  1e3 * sink->times().time_to_first_token_seconds, static_cast<long long>(sink->tokens()),
                  decode > 0 ? static_cast<double>(sink->tokens() - 1) / decode : 0.0);
    std::cerr << line;
    if (options.engine.speculative != "off") {
      const EngineStats stats = engine->Stats();
      std::snprintf(line, sizeof(line), "[speculative %s: %llu of %llu guesses came true, %llu steps]\n",
                    options.engine.speculative.c_str(), static_cast<unsigned long long>(stats.guesses_accepted),
                    static_cast<unsigned long long>(stats.guesses_proposed),
                    static_cast<unsigned long long>(stats.steps));
      std::cerr << line;
    }
  }
  return kExitOk;
}

int Run(RunOptions options) {
  std::string text;
  if (options.positional.size() == 2) options.model = options.positional[0];
  text = options.positional.back();
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  const StatusOr<int> code = RunModel(options, options.model, text);
  if (code.ok()) return *code;
  std::cerr << "moe run: " << DescribeError(code.status()) << "\n";
  return kExitModel;
}

// CLI11 would call the two positional arguments one that comes twice.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] [MODEL] \"text\"\n";
  }
};

}  // namespace

void RegisterRunCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Generate text in this process, without a server: moe run [MODEL] \"text\". Streams to standard output.");
  command->formatter(std::make_shared<RunFormatter>());
  command->footer(
      "Exit codes: 0 done, 2 bad options, 3 the model cannot be loaded or the request is refused.\n"
      "\n"
      "  moe run \"O Romeo, \" -m 40                             the built-in demo model\n"
      "  echo \"O Romeo, \" | moe run /models/Qwen3-30B-A3B - -t 0");
  command
      ->add_option("prompt", options->positional,
                   "[MODEL directory; none: the demo model] and the text; - reads it from standard input")
      ->required()
      ->expected(1, 2);
  command->add_option("--model", options->model, "Directory of the checkpoint")->envname("MOE_MODEL");
  command->add_flag("--chat", options->chat, "The text is a user's message: apply the chat template");
  command->add_flag("--ids", options->ids, "The text is token ids, and so is the output");
  command->add_flag("--quiet", options->quiet, "No line of figures at the end");
  command->add_option("--max-new-tokens,-m", options->max_new_tokens, "Tokens to generate at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--temperature,-t", options->temperature, "0: greedy")->check(CLI::Range(0.0f, 1e6f));
  command->add_option("--top-p", options->top_p, "Smallest set of tokens with this probability")
      ->check(CLI::Range(1e-9f, 1.0f));
  command->add_option("--top-k", options->top_k, "The k most likely tokens; 0: off");
  command->add_option("--seed,-s", options->seed, "The same seed gives the same text")->transform(SeedText());
  command->add_option("--stop", options->stop, "End before this text; may be repeated")
      ->allow_extra_args(false)
      ->check(NotEmpty());
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on past the end token");
  AddEngineFlags(command, &options->engine);
  command->callback([options, exit_code] { *exit_code = Run(*options); });
}

}  // namespace moe
