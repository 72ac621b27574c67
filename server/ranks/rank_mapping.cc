#include "server/ranks/rank_mapping.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/ranks/step_mapping.h"

namespace moe {
namespace {

constexpr uint32_t kMaxStatusCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr int kMaxRanks = 65536;  // of a group; also bounds slots

template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <typename... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

void StatusToProto(const Status& from, v1::RankStatus* to) {
  to->set_code(static_cast<uint32_t>(from.code()));
  to->set_message(std::string(from.message()));
}

// Into *to; the result is about the message itself. (Absent is OK, as proto3 leaves defaults out.)
Status StatusFromProto(const v1::RankStatus& from, Status* to) {
  if (from.code() > kMaxStatusCode) return InvalidError("rank message: no status code ", from.code());
  *to = Status(static_cast<absl::StatusCode>(from.code()), from.message());
  return Status();
}

void ExpertsToProto(const ExpertLists& from, google::protobuf::RepeatedPtrField<v1::RankExpertList>* to) {
  for (const std::vector<int32_t>& layer : from) to->Add()->mutable_experts()->Assign(layer.begin(), layer.end());
}

StatusOr<ExpertLists> ExpertsFromProto(const google::protobuf::RepeatedPtrField<v1::RankExpertList>& from) {
  ExpertLists to;
  to.reserve(static_cast<size_t>(from.size()));
  for (const v1::RankExpertList& layer : from) {
    int32_t last = -1;
    for (const int32_t expert : layer.experts()) {
      if (expert <= last) return InvalidError("rank message: experts of a layer not in order at ", expert);
      last = expert;
    }
    to.emplace_back(layer.experts().begin(), layer.experts().end());
  }
  return to;
}

void PlacementToProto(const ExpertPlacement& from, v1::RankPlacement* to) {
  to->set_num_ranks(from.num_ranks());
  for (int64_t expert = 0; expert < from.num_experts(); ++expert) {
    const auto ranks = from.RanksOf(expert);
    const auto shares = from.SharesOf(expert);
    to->add_counts(static_cast<uint32_t>(ranks.size()));
    to->mutable_ranks()->Add(ranks.begin(), ranks.end());
    to->mutable_shares()->Add(shares.begin(), shares.end());
  }
}

StatusOr<ExpertPlacement> PlacementFromProto(const v1::RankPlacement& from) {
  uint64_t sum = 0;
  for (const uint32_t count : from.counts()) sum += count;
  if (sum != static_cast<uint64_t>(from.ranks_size()) || from.shares_size() != from.ranks_size()) {
    return InvalidError("rank message: placement with ", sum, " holders, ", from.ranks_size(), " ranks, ",
                        from.shares_size(), " shares");
  }
  std::vector<std::vector<int32_t>> ranks;
  std::vector<std::vector<float>> shares;
  ranks.reserve(static_cast<size_t>(from.counts_size()));
  shares.reserve(static_cast<size_t>(from.counts_size()));
  auto rank = from.ranks().begin();
  auto share = from.shares().begin();
  for (const uint32_t count : from.counts()) {
    ranks.emplace_back(rank, rank + count);
    shares.emplace_back(share, share + count);
    rank += count;
    share += count;
  }
  return ExpertPlacement::FromShares(std::move(ranks), std::move(shares), from.num_ranks());
}

Status NotNegative(const char* what, std::initializer_list<int64_t> values) {
  for (const int64_t value : values) {
    if (value < 0) return InvalidError("rank message: ", what, " has a number below 0: ", value);
  }
  return Status();
}

v1::RankStoreEntry StoreEntryToProto(const StoreEntry& from) {
  v1::RankStoreEntry to;
  to.set_generation(from.generation);
  to.set_key(from.key);
  to.set_value(from.value);
  return to;
}

StoreEntry StoreEntryFromProto(const v1::RankStoreEntry& from) {
  return {from.generation(), from.key(), from.value()};
}

Status CheckSuspect(int32_t suspect) {
  if (suspect < -1 || suspect >= kMaxRanks) return InvalidError("rank message: no member ", suspect);
  return Status();
}

// --- Reports ---

StatusOr<RankReport> HelloFromProto(const v1::RankHello& from) {
  RankHello to{from.build(), from.checkpoint(), from.host(), {}};
  to.backends.assign(from.backends().begin(), from.backends().end());
  return to;
}

StatusOr<RankReport> ProgressFromProto(const v1::RankProgress& from) {
  if (!(from.fraction() >= 0 && from.fraction() <= 1)) return InvalidError("rank message: progress ", from.fraction());
  return RankProgress{from.fraction()};
}

StatusOr<RankReport> LoadedFromProto(const v1::RankLoaded& from) {
  MOE_RETURN_IF_ERROR(NotNegative("RankLoaded", {from.weight_bytes(), from.available_bytes()}));
  return RankLoaded{from.weight_bytes(), from.available_bytes()};
}

StatusOr<RankReport> FailedFromProto(const v1::RankFailed& from) {
  RankFailed to;
  MOE_RETURN_IF_ERROR(StatusFromProto(from.status(), &to.status));
  if (to.status.ok()) return InvalidError("rank message: RankFailed without an error");
  return to;
}

StatusOr<RankReport> FormedFromProto(const v1::RankFormed& from) {
  RankFormed to;
  to.generation = from.generation();
  MOE_RETURN_IF_ERROR(StatusFromProto(from.status(), &to.status));
  MOE_RETURN_IF_ERROR(CheckSuspect(from.suspect()));
  to.suspect = from.suspect();
  return to;
}

StatusOr<RankReport> PreparedFromProto(const v1::RankPrepared& from) {
  RankPrepared to;
  to.ticket = from.ticket();
  MOE_RETURN_IF_ERROR(StatusFromProto(from.status(), &to.status));
  return to;
}

StatusOr<RankReport> StepDoneFromProto(const v1::RankStepDone& from) {
  RankStepDone to;
  to.generation = from.generation();
  to.step = from.step();
  MOE_RETURN_IF_ERROR(StatusFromProto(from.status(), &to.status));
  MOE_RETURN_IF_ERROR(CheckSuspect(from.suspect()));
  to.suspect = from.suspect();
  if (to.status.ok() != from.has_result()) {
    return InvalidError("rank message: step ", to.step, from.has_result() ? " failed with" : " succeeded without",
                        " a result");
  }
  if (from.has_result()) {
    MOE_ASSIGN_OR_RETURN(to.result, ResultFromProto(from.result()));
  }
  return to;
}

// --- Orders ---

StatusOr<RankOrder> LoadFromProto(const v1::RankLoadWeights& from) {
  if (from.slot() < 0 || from.slot() >= kMaxRanks) return InvalidError("rank message: slot ", from.slot());
  LoadRank to;
  to.slot = from.slot();
  to.backend = from.backend();
  to.dtype = from.dtype();
  MOE_ASSIGN_OR_RETURN(to.experts, ExpertsFromProto(from.experts()));
  return to;
}

StatusOr<RankOrder> ConfigureFromProto(const v1::RankConfigure& from) {
  MOE_RETURN_IF_ERROR(NotNegative(
      "RankConfigure", {from.kv_blocks(), from.state_slots(), from.state_snapshots(), from.rollback_slots()}));
  return ConfigureRank{from.kv_blocks(), from.state_slots(), from.state_snapshots(), from.rollback_slots()};
}

StatusOr<RankOrder> PrepareFromProto(const v1::RankPrepareExperts& from) {
  PrepareExperts to;
  to.ticket = from.ticket();
  MOE_ASSIGN_OR_RETURN(to.experts, ExpertsFromProto(from.experts()));
  to.let_go = from.let_go();
  return to;
}

StatusOr<RankOrder> FormGroupFromProto(const v1::RankFormGroup& from) {
  if (from.size() < 1 || from.size() > kMaxRanks || from.member() < 0 || from.member() >= from.size()) {
    return InvalidError("rank message: member ", from.member(), " of a group of ", from.size());
  }
  FormGroup to;
  to.generation = from.generation();
  to.member = from.member();
  to.size = from.size();
  MOE_ASSIGN_OR_RETURN(to.transport, ParseTransport(from.transport()));
  to.placements.reserve(static_cast<size_t>(from.placements_size()));
  for (const v1::RankPlacement& placement : from.placements()) {
    if (placement.num_ranks() != from.size()) {
      return InvalidError("rank message: placement over ", placement.num_ranks(), " ranks for a group of ",
                          from.size());
    }
    MOE_ASSIGN_OR_RETURN(ExpertPlacement read, PlacementFromProto(placement));
    to.placements.push_back(std::move(read));
  }
  to.same_group = from.same_group();
  to.undo_step = from.undo_step();
  to.forget_sequences = from.forget_sequences();
  return to;
}

StatusOr<RankOrder> StepFromProto(const v1::RankStep& from) {
  MOE_ASSIGN_OR_RETURN(RankPlan plan, PlanFromProto(from));
  return RankStep{from.generation(), from.step(), from.rows(), std::move(plan)};
}

}  // namespace

v1::RankReportMessage ToProto(const RankReport& report) {
  v1::RankReportMessage message;
  std::visit(Overloaded{[&](const RankHello& from) {
                          v1::RankHello* to = message.mutable_hello();
                          to->set_build(from.build);
                          to->set_checkpoint(from.checkpoint);
                          to->set_host(from.host);
                          for (const std::string& backend : from.backends) to->add_backends(backend);
                        },
                        [&](const RankProgress& from) { message.mutable_progress()->set_fraction(from.fraction); },
                        [&](const RankLoaded& from) {
                          message.mutable_loaded()->set_weight_bytes(from.weight_bytes);
                          message.mutable_loaded()->set_available_bytes(from.available_bytes);
                        },
                        [&](const RankFailed& from) {
                          StatusToProto(from.status, message.mutable_failed()->mutable_status());
                        },
                        [&](const StoreEntry& from) { *message.mutable_store_entry() = StoreEntryToProto(from); },
                        [&](const RankFormed& from) {
                          v1::RankFormed* to = message.mutable_formed();
                          to->set_generation(from.generation);
                          StatusToProto(from.status, to->mutable_status());
                          to->set_suspect(from.suspect);
                        },
                        [&](const RankPrepared& from) {
                          message.mutable_prepared()->set_ticket(from.ticket);
                          StatusToProto(from.status, message.mutable_prepared()->mutable_status());
                        },
                        [&](const RankStepDone& from) {
                          v1::RankStepDone* to = message.mutable_step_done();
                          to->set_generation(from.generation);
                          to->set_step(from.step);
                          StatusToProto(from.status, to->mutable_status());
                          to->set_suspect(from.suspect);
                          if (from.status.ok()) ResultToProto(from.result, to->mutable_result());
                        }},
             report);
  return message;
}

v1::RankOrderMessage ToProto(const RankOrder& order) {
  v1::RankOrderMessage message;
  std::visit(Overloaded{[&](const RefuseRank& from) { message.mutable_refuse()->set_reason(from.reason); },
                        [&](const LoadRank& from) {
                          v1::RankLoadWeights* to = message.mutable_load();
                          to->set_slot(from.slot);
                          to->set_backend(from.backend);
                          to->set_dtype(from.dtype);
                          ExpertsToProto(from.experts, to->mutable_experts());
                        },
                        [&](const ConfigureRank& from) {
                          v1::RankConfigure* to = message.mutable_configure();
                          to->set_kv_blocks(from.kv_blocks);
                          to->set_state_slots(from.state_slots);
                          to->set_state_snapshots(from.state_snapshots);
                          to->set_rollback_slots(from.rollback_slots);
                        },
                        [&](const PrepareExperts& from) {
                          message.mutable_prepare_experts()->set_ticket(from.ticket);
                          ExpertsToProto(from.experts, message.mutable_prepare_experts()->mutable_experts());
                          message.mutable_prepare_experts()->set_let_go(from.let_go);
                        },
                        [&](const FormGroup& from) {
                          v1::RankFormGroup* to = message.mutable_form_group();
                          to->set_generation(from.generation);
                          to->set_member(from.member);
                          to->set_size(from.size);
                          to->set_transport(TransportName(from.transport));
                          for (const ExpertPlacement& placement : from.placements) {
                            PlacementToProto(placement, to->add_placements());
                          }
                          to->set_same_group(from.same_group);
                          to->set_undo_step(from.undo_step);
                          to->set_forget_sequences(from.forget_sequences);
                        },
                        [&](const StoreEntry& from) { *message.mutable_store_entry() = StoreEntryToProto(from); },
                        [&](const RankStep& from) {
                          v1::RankStep* to = message.mutable_step();
                          to->set_generation(from.generation);
                          to->set_step(from.step);
                          to->set_rows(from.rows);
                          PlanToProto(from.plan, to);
                        },
                        [&](const AbortStep& from) {
                          message.mutable_abort_step()->set_generation(from.generation);
                          message.mutable_abort_step()->set_reason(from.reason);
                        },
                        [&](const StopRank& from) { message.mutable_stop()->set_reason(from.reason); }},
             order);
  return message;
}

StatusOr<RankReport> FromProto(const v1::RankReportMessage& message) {
  switch (message.report_case()) {
    case v1::RankReportMessage::kHello:
      return HelloFromProto(message.hello());
    case v1::RankReportMessage::kProgress:
      return ProgressFromProto(message.progress());
    case v1::RankReportMessage::kLoaded:
      return LoadedFromProto(message.loaded());
    case v1::RankReportMessage::kFailed:
      return FailedFromProto(message.failed());
    case v1::RankReportMessage::kStoreEntry:
      return RankReport(StoreEntryFromProto(message.store_entry()));
    case v1::RankReportMessage::kFormed:
      return FormedFromProto(message.formed());
    case v1::RankReportMessage::kPrepared:
      return PreparedFromProto(message.prepared());
    case v1::RankReportMessage::kStepDone:
      return StepDoneFromProto(message.step_done());
    case v1::RankReportMessage::kHeartbeat:
    case v1::RankReportMessage::kFragment:
    case v1::RankReportMessage::REPORT_NOT_SET:
      break;
  }
  return InvalidError("rank message: no report in it");
}

StatusOr<RankOrder> FromProto(const v1::RankOrderMessage& message) {
  switch (message.order_case()) {
    case v1::RankOrderMessage::kRefuse:
      return RankOrder(RefuseRank{message.refuse().reason()});
    case v1::RankOrderMessage::kLoad:
      return LoadFromProto(message.load());
    case v1::RankOrderMessage::kConfigure:
      return ConfigureFromProto(message.configure());
    case v1::RankOrderMessage::kPrepareExperts:
      return PrepareFromProto(message.prepare_experts());
    case v1::RankOrderMessage::kFormGroup:
      return FormGroupFromProto(message.form_group());
    case v1::RankOrderMessage::kStoreEntry:
      return RankOrder(StoreEntryFromProto(message.store_entry()));
    case v1::RankOrderMessage::kStep:
      return StepFromProto(message.step());
    case v1::RankOrderMessage::kAbortStep:
      return RankOrder(AbortStep{message.abort_step().generation(), message.abort_step().reason()});
    case v1::RankOrderMessage::kStop:
      return RankOrder(StopRank{message.stop().reason()});
    case v1::RankOrderMessage::kFragment:
    case v1::RankOrderMessage::ORDER_NOT_SET:
      break;
  }
  return InvalidError("rank message: no order in it");
}

}  // namespace moe
