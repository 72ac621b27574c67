#include "server/inference_service.h"

#include <string>
#include <utility>
#include <vector>

#include "moe/v1/inference.grpc.pb.h"
#include "server/chat_prompt.h"
#include "server/generate_reactors.h"
#include "server/request_mapping.h"
#include "server/response_mapping.h"
#include "server/server_core.h"
#include "server/unary_call.h"

namespace moe {
namespace {

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(ServerCore* core) : core_(core) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override {
    return StartGenerate(core_, context, request, response);
  }

  grpc::ServerWriteReactor<v1::GenerateChunk>* GenerateStream(grpc::CallbackServerContext* context,
                                                              const v1::GenerateRequest* request) override {
    return StartGenerateStream(core_, context, request);
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    return RunInPool(core_, context, Method::kTokenize,
                     [this, request, response] { return Tokenize(*request, response); });
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    return RunInPool(core_, context, Method::kDetokenize,
                     [this, request, response] { return Detokenize(*request, response); });
  }

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::ModelInfo* response) override {
    const StatusOr<ServedModel*> model = core_->host().ForQuery(request->model());
    if (model.ok()) FillModelInfo((*model)->name, *(*model)->engine, response);
    return Answer(core_, context, Method::kGetModel, model.status());
  }

 private:
  Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* response) {
    MOE_ASSIGN_OR_RETURN(const ServedModel* model, core_->host().ForQuery(request.model()));
    EncodedPrompt encoded;
    switch (request.input_case()) {
      case v1::TokenizeRequest::kText: {
        MOE_ASSIGN_OR_RETURN(encoded, model->prompts.EncodeText(request.text(), !request.omit_special_tokens()));
        break;
      }
      case v1::TokenizeRequest::kChat: {
        MOE_ASSIGN_OR_RETURN(const ChatPrompt chat, MapChat(request.chat(), "chat", core_->limits()));
        MOE_ASSIGN_OR_RETURN(encoded, model->prompts.EncodeChat(chat));
        break;
      }
      case v1::TokenizeRequest::INPUT_NOT_SET:
        return InvalidError("input: is not set; give one of text, chat");
    }
    response->mutable_ids()->Add(encoded.ids.begin(), encoded.ids.end());
    response->set_rendered(std::move(encoded.rendered));
    return Status();
  }

  Status Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* response) {
    MOE_ASSIGN_OR_RETURN(const ServedModel* model, core_->host().ForQuery(request.model()));
    MOE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         MapTokenIds(request.ids(), "ids", model->engine->model().spec.vocab_size));
    MOE_ASSIGN_OR_RETURN(*response->mutable_text(), model->prompts.Decode(ids, request.keep_special_tokens()));
    return Status();
  }

  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewInferenceService(ServerCore* core) {
  return std::make_unique<InferenceService>(core);
}

}  // namespace moe
