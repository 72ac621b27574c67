#include "server/commands/generate_client.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <thread>

#include "moe/v1/inference.grpc.pb.h"
#include "server/commands/client.h"
#include "server/commands/signals.h"
#include "server/commands/terminal_text.h"

namespace moe {
namespace {

constexpr int kExitInterrupted = 130;

v1::GenerateRequest MakeRequest(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  request.set_model(flags.model);
  if (flags.chat) {
    if (!flags.system.empty()) {
      v1::ChatMessage* system = request.mutable_chat()->add_messages();
      system->set_role("system");
      system->set_content(flags.system);
    }
    v1::ChatMessage* user = request.mutable_chat()->add_messages();
    user->set_role("user");
    user->set_content(flags.prompt);
  } else {
    request.set_text(flags.prompt);
  }
  v1::SamplingParams* sampling = request.mutable_sampling();
  if (flags.temperature) sampling->set_temperature(*flags.temperature);
  if (flags.top_p) sampling->set_top_p(*flags.top_p);
  if (flags.top_k) sampling->set_top_k(*flags.top_k);
  if (flags.min_p) sampling->set_min_p(*flags.min_p);
  if (flags.repetition_penalty) sampling->set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling->set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling->set_frequency_penalty(*flags.frequency_penalty);
  if (flags.seed) sampling->set_seed(*flags.seed);
  if (flags.n) sampling->set_n(*flags.n);
  v1::Stopping* stopping = request.mutable_stopping();
  if (flags.max_new_tokens) stopping->set_max_new_tokens(*flags.max_new_tokens);
  if (flags.min_new_tokens) stopping->set_min_new_tokens(*flags.min_new_tokens);
  for (const std::string& stop : flags.stop) stopping->add_stop(stop);
  stopping->set_ignore_eos(flags.ignore_eos);
  return request;
}

// Cancels the call when Ctrl-C (or SIGTERM) comes.
class Interrupter {
 public:
  explicit Interrupter(grpc::ClientContext* context)
      : thread_([this, context] {
          while (!done_) {
            if (WaitForStopSignal(std::chrono::milliseconds(100)) == 0) continue;
            interrupted_ = true;
            context->TryCancel();
            return;
          }
        }) {}
  ~Interrupter() {
    done_ = true;
    thread_.join();
  }
  bool interrupted() const { return interrupted_; }

 private:
  std::atomic<bool> done_{false};
  std::atomic<bool> interrupted_{false};
  std::thread thread_;
};

void PrintJson(const v1::GenerateChunk& chunk) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(chunk, &line, options).ok()) return;
  std::cout << line << "\n" << std::flush;
}

// One sample streams to the terminal; several are printed one after the other at the end.
class TextPrinter {
 public:
  TextPrinter(bool several, bool terminal) : several_(several), terminal_(terminal) {}

  void Add(const v1::GenerateChunk& chunk) {
    printed_ = true;
    if (several_) {
      texts_[chunk.index()] += chunk.delta().text();
    } else {
      Print(chunk.delta().text());
    }
  }

  void Finish() {
    for (const auto& [index, text] : texts_) {
      std::cout << "--- sample " << index + 1 << "\n";
      Print(text);
      std::cout << "\n";
    }
    if (printed_ && !several_) std::cout << "\n";
    std::cout << std::flush;
  }

 private:
  void Print(const std::string& text) { std::cout << (terminal_ ? TerminalText(text) : text) << std::flush; }

  const bool several_;
  const bool terminal_;
  bool printed_ = false;
  std::map<uint32_t, std::string> texts_;
};

}  // namespace

int RunGenerate(const GenerateFlags& flags) {
  BlockStopSignals();
  const auto stub = v1::Inference::NewStub(OpenChannel(flags.target));
  grpc::ClientContext context;
  if (flags.timeout > 0) {
    const auto wait = std::chrono::duration<double>(flags.timeout);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait));
  }
  const Interrupter interrupter(&context);
  const auto reader = stub->GenerateStream(&context, MakeRequest(flags));
  TextPrinter printer(flags.n.value_or(1) > 1, isatty(STDOUT_FILENO) == 1);
  v1::GenerateChunk chunk;
  v1::Usage usage;
  while (reader->Read(&chunk)) {
    usage = chunk.usage();
    if (flags.json) {
      PrintJson(chunk);
    } else {
      printer.Add(chunk);
    }
    if (!std::cout) context.TryCancel();  // nobody reads what is printed: the server need not go on
  }
  if (!flags.json) printer.Finish();
  const grpc::Status status = reader->Finish();
  if (!std::cout) {
    std::cerr << "moe generate: cannot write to standard output\n";
    return 1;
  }
  if (interrupter.interrupted()) {
    std::cerr << "moe generate: cancelled\n";
    return kExitInterrupted;
  }
  if (!status.ok()) {
    std::cerr << "moe generate: " << DescribeGrpcError(status, flags.target) << "\n";
    return 1;
  }
  if (isatty(STDERR_FILENO) == 1 && !flags.json) {
    const double seconds = usage.total_seconds();
    std::fprintf(stderr, "[%u prompt tokens, %u generated, %.2f s to the first, %.1f tokens/s]\n",
                 usage.prompt_tokens(), usage.generated_tokens(), usage.time_to_first_token_seconds(),
                 seconds > 0 ? usage.generated_tokens() / seconds : 0.0);
  }
  return 0;
}

}  // namespace moe
