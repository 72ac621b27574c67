// RankReport and RankOrder ↔ worker.proto, bit for bit. What is read may come from anywhere: INVALID_ARGUMENT for a
// message without content, codes and numbers out of range, and parts that do not fit together.
#ifndef MOE_SERVER_RANKS_RANK_MAPPING_H_
#define MOE_SERVER_RANKS_RANK_MAPPING_H_

#include "engine/core/rank_messages.h"
#include "moe/v1/worker.pb.h"
#include "parallel/base/status.h"

namespace moe {

v1::RankReportMessage ToProto(const RankReport& report);
v1::RankOrderMessage ToProto(const RankOrder& order);

// Not for heartbeats and fragments, which are no reports: INVALID_ARGUMENT.
StatusOr<RankReport> FromProto(const v1::RankReportMessage& message);
StatusOr<RankOrder> FromProto(const v1::RankOrderMessage& message);

}  // namespace moe

#endif  // MOE_SERVER_RANKS_RANK_MAPPING_H_
