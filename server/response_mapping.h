// From deltas and engine facts to the wire's messages. See request_mapping.h.
#ifndef MOE_SERVER_RESPONSE_MAPPING_H_
#define MOE_SERVER_RESPONSE_MAPPING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/engine.h"
#include "server/delta.h"

namespace moe::v1 {
class ExpertPlacement;
class GenerateChunk;
class GenerateResponse;
class Load;
class ModelInfo;
}  // namespace moe::v1

namespace moe {

struct ModelSpec;

// What of a request its answers depend on.
struct ResponseShape {
  ResponseShape(const Request& request, const std::string& model_name, const ModelSpec& spec);
  std::string request_id;
  std::string model;
  bool logprobs;
  bool routed_experts;
  uint32_t moe_layers;
  uint32_t experts_per_token;
};

void FillChunk(const Delta& delta, const CallUsage& usage, const ResponseShape& shape, v1::GenerateChunk* chunk);

// `choices`: one delta a choice, in any order.
void FillResponse(std::vector<Delta> choices, const CallUsage& usage, const ResponseShape& shape,
                  v1::GenerateResponse* response);

void FillModelInfo(const std::string& name, const Engine& engine, v1::ModelInfo* info);

void FillLoad(const EngineStats& stats, const EngineInfo& info, v1::Load* load);

void FillPlacement(const EngineStats& stats, v1::ExpertPlacement* placement);

}  // namespace moe

#endif  // MOE_SERVER_RESPONSE_MAPPING_H_
