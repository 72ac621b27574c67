// From the wire's messages to checked requests, and back (response_mapping.h): the only files that know both. Bad input
// ends here with INVALID_ARGUMENT naming field, value and allowed range. Messages never quote prompts or chat content.
#ifndef MOE_SERVER_REQUEST_MAPPING_H_
#define MOE_SERVER_REQUEST_MAPPING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/base/status.h"
#include "server/chat_prompt.h"
#include "server/generate_spec.h"
#include "server/server_options.h"

namespace google::protobuf {
template <typename T>
class RepeatedField;
}

namespace moe::v1 {
class Chat;
class GenerateRequest;
}  // namespace moe::v1

namespace moe {

struct LoadedModel;

struct MappingContext {
  const LoadedModel& model;
  const RequestLimits& limits;
};

StatusOr<GenerateSpec> MapGenerateRequest(const v1::GenerateRequest& request, const MappingContext& context);

// The messages, tools and template arguments of a chat; `field` is its place in the request ("chat").
StatusOr<ChatPrompt> MapChat(const v1::Chat& chat, const std::string& field, const RequestLimits& limits);

// Every id inside the vocabulary.
StatusOr<std::vector<int32_t>> MapTokenIds(const google::protobuf::RepeatedField<uint32_t>& ids,
                                           const std::string& field, int64_t vocab_size);

// A number for Operations: finite and ≥ 0.
Status CheckSeconds(double value, const std::string& field);

}  // namespace moe

#endif  // MOE_SERVER_REQUEST_MAPPING_H_
