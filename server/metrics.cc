#include "server/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

#include "server/expert_load.h"
#include "server/process_metrics.h"
#include "server/server_core.h"

namespace moe {
namespace {

double AsDouble(uint64_t value) {
  return static_cast<double>(value);
}
double AsDouble(int64_t value) {
  return static_cast<double>(value);
}

void WriteServer(const ServerCore& core, MetricWriter* out) {
  const ServerCounters& counters = core.counters();
  for (size_t method = 0; method < kMethodNames.size(); ++method) {
    for (size_t code = 0; code < kStatusCodeNames.size(); ++code) {
      const uint64_t count = counters.finished(method, code);
      if (count == 0 && code != 0) continue;  // the others appear with their first call
      out->Counter("moe_requests_total", "Calls that have ended, by method and gRPC status.", AsDouble(count),
                   {{"method", kMethodNames[method]}, {"code", kStatusCodeNames[code]}});
    }
  }
  for (size_t i = 0; i < kRejectReasonNames.size(); ++i) {
    out->Counter("moe_requests_rejected_total", "Generations turned away before they began.",
                 AsDouble(counters.rejected(static_cast<RejectReason>(i))), {{"reason", kRejectReasonNames[i]}});
  }
  for (size_t i = 0; i < kCancelCauseNames.size(); ++i) {
    out->Counter("moe_requests_cancelled_total", "Generations ended before their time.",
                 AsDouble(counters.cancelled(static_cast<CancelCause>(i))), {{"cause", kCancelCauseNames[i]}});
  }
  out->Gauge("moe_stream_backlog_bytes", "Output that waits because clients do not read their streams.",
             AsDouble(core.stream_backlog()));
  out->Gauge("moe_ready", "1 while new requests are taken.", core.host().Serving() ? 1 : 0);
  out->Gauge("moe_model_load_progress_ratio", "How far the model is loaded.", core.host().progress().fraction);
}

void WriteRequests(const EngineStats& stats, MetricWriter* out) {
  out->Gauge("moe_requests_running", "Requests being computed.", AsDouble(stats.running));
  out->Gauge("moe_requests_waiting", "Requests in the queue.", AsDouble(stats.waiting));
  const char* finished = "moe_requests_finished_total";
  const char* finished_help = "Choices that have ended, by finish reason.";
  out->Counter(finished, finished_help, AsDouble(stats.finish_eos), {{"reason", "eos"}});
  out->Counter(finished, finished_help, AsDouble(stats.finish_stop), {{"reason", "stop"}});
  out->Counter(finished, finished_help, AsDouble(stats.finish_length), {{"reason", "length"}});
  out->Counter(finished, finished_help, AsDouble(stats.finish_cancelled), {{"reason", "cancelled"}});
  out->Histogram("moe_request_duration_seconds", "From arrival in the engine to the end.", stats.request_seconds);
  out->Histogram("moe_request_queue_seconds", "From arrival in the engine to the first step.", stats.queue_seconds);
  out->Histogram("moe_time_to_first_token_seconds", "From arrival in the engine to the first token.",
                 stats.time_to_first_token_seconds);
  out->Histogram("moe_inter_token_latency_seconds", "Between two tokens of a choice.", stats.inter_token_seconds);
  const char* prompt = "moe_prompt_tokens_total";
  const char* prompt_help = "Prompt tokens, computed or taken from the prefix cache.";
  out->Counter(prompt, prompt_help, AsDouble(stats.prompt_tokens_computed), {{"source", "computed"}});
  out->Counter(prompt, prompt_help, AsDouble(stats.prompt_tokens_cached), {{"source", "cached"}});
  out->Counter("moe_generated_tokens_total", "Tokens generated.", AsDouble(stats.generated_tokens));
  out->Histogram("moe_request_prompt_tokens", "Prompt length of finished requests.", stats.prompt_tokens);
  out->Histogram("moe_request_generated_tokens", "Output length of finished requests.",
                 stats.generated_tokens_per_request);
}

void WriteScheduler(const EngineStats& stats, const EngineInfo& info, MetricWriter* out) {
  out->Counter("moe_steps_total", "Steps of the engine.", AsDouble(stats.steps));
  out->Histogram("moe_step_duration_seconds", "Time of a step.", stats.step_seconds);
  out->Histogram("moe_step_tokens", "Tokens computed in a step.", stats.step_tokens);
  out->Histogram("moe_step_sequences", "Sequences that took part in a step.", stats.step_sequences);
  out->Gauge("moe_kv_block_size_tokens", "Tokens a K/V block holds.", AsDouble(info.kv_block_tokens));
  out->Gauge("moe_kv_cache_blocks", "K/V blocks there are.", AsDouble(stats.kv_blocks_total));
  out->Gauge("moe_kv_cache_used_blocks", "K/V blocks that sequences hold.", AsDouble(stats.kv_blocks_used));
  out->Gauge("moe_kv_cache_cached_blocks", "K/V blocks held by the prefix cache alone.",
             AsDouble(stats.kv_blocks_cached));
  out->Gauge("moe_kv_cache_usage_ratio", "Share of the K/V blocks that sequences hold.",
             AsDouble(stats.kv_blocks_used) / AsDouble(std::max<int64_t>(1, stats.kv_blocks_total)));
  out->Counter("moe_prefix_cache_queries_total", "Prompt blocks looked up in the prefix cache.",
               AsDouble(stats.prefix_queries));
  out->Counter("moe_prefix_cache_hits_total", "Prompt blocks found in the prefix cache.", AsDouble(stats.prefix_hits));
  out->Counter("moe_speculative_proposed_tokens_total", "Guesses of next tokens that steps computed (--speculative).",
               AsDouble(stats.guesses_proposed));
  out->Counter("moe_speculative_accepted_tokens_total", "Of those, the ones that came true.",
               AsDouble(stats.guesses_accepted));
  out->Counter("moe_preemptions_total", "Sequences put back into the queue because K/V blocks ran out.",
               AsDouble(stats.preemptions));
}

void WriteExperts(const EngineStats& stats, bool per_expert, MetricWriter* out) {
  std::vector<ExpertLoad> loads;
  for (size_t l = 0; l < stats.moe_layers.size(); ++l) {
    loads.push_back(MeasureExpertLoad(stats.moe_layers[l], PlacementOf(stats, l)));
  }
  const auto name = [&](size_t i) { return std::to_string(stats.moe_layers[i].layer); };
  const char* tokens = "moe_expert_tokens_total";
  const char* help = "Rows routed to experts, by layer and by the rank that computed them, or by expert.";
  for (size_t i = 0; i < loads.size(); ++i) {
    if (!per_expert) {
      const std::vector<double>& ranks = stats.moe_layers[i].tokens_per_rank;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        out->Counter(tokens, help, ranks[rank], {{"layer", name(i)}, {"rank", std::to_string(rank)}});
      }
      continue;
    }
    const std::vector<uint64_t>& counts = stats.moe_layers[i].tokens_per_expert;
    for (size_t e = 0; e < counts.size(); ++e) {
      out->Counter(tokens, help, AsDouble(counts[e]), {{"layer", name(i)}, {"expert", std::to_string(e)}});
    }
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    out->Gauge("moe_expert_imbalance_ratio", "Busiest expert's rows over the mean of the layer; 1 is even.",
               loads[i].expert_imbalance, {{"layer", name(i)}});
  }
  double worst = 1;
  for (size_t i = 0; i < loads.size(); ++i) {
    const double balance = 1 / loads[i].rank_imbalance;
    worst = std::min(worst, balance);
    out->Gauge("moe_expert_balance_ratio", "Mean rows of the ranks over the busiest rank's; 1 is even.", balance,
               {{"layer", name(i)}});
  }
  out->Gauge("moe_expert_balance_worst_ratio", "The smallest moe_expert_balance_ratio of all layers.", worst);
  for (size_t i = 0; i < loads.size(); ++i) {
    out->Gauge("moe_experts_unused", "Experts of the layer that were never chosen.", AsDouble(loads[i].unused),
               {{"layer", name(i)}});
  }
}

void WriteRanks(const EngineStats& stats, MetricWriter* out) {
  const RankGroupStats& group = stats.group;
  out->Gauge("moe_ranks", "Places for ranks (--expert-parallel-size).", stats.ranks);
  out->Gauge("moe_ranks_alive", "Ranks that take part in steps.", AsDouble(group.ranks_alive));
  out->Gauge("moe_rank_generation", "Number of the group of ranks; a new one is formed when a rank comes or is lost.",
             AsDouble(group.generation));
  out->Counter("moe_rank_recoveries_total", "Groups formed because a rank was lost.", AsDouble(group.recoveries));
  out->Histogram("moe_rank_recovery_seconds", "From the sign of a rank's loss to the group without it.",
                 group.recovery_seconds);
  out->Counter("moe_sequences_replayed_total", "Sequences computed anew because their rank was lost.",
               AsDouble(stats.replays));
  for (size_t rank = 0; rank < stats.rank_expert_tokens.size(); ++rank) {
    out->Counter("moe_rank_expert_rows_total", "Rows that a rank's experts computed, for all ranks.",
                 AsDouble(stats.rank_expert_tokens[rank]), {{"rank", std::to_string(rank)}});
  }
  const ExchangeStats& exchange = stats.exchange;
  const char* bytes = "moe_all_to_all_bytes_total";
  const char* help = "Bytes that ranks sent to each other: numbers of rows, rows for experts, results.";
  out->Counter(bytes, help, AsDouble(exchange.bytes_counts), {{"phase", "counts"}});
  out->Counter(bytes, help, AsDouble(exchange.bytes_dispatch), {{"phase", "dispatch"}});
  out->Counter(bytes, help, AsDouble(exchange.bytes_combine), {{"phase", "combine"}});
  const char* seconds = "moe_all_to_all_seconds_total";
  const char* seconds_help = "Time in exchanges, waiting for other ranks included, summed over the ranks.";
  out->Counter(seconds, seconds_help, exchange.seconds_counts, {{"phase", "counts"}});
  out->Counter(seconds, seconds_help, exchange.seconds_dispatch, {{"phase", "dispatch"}});
  out->Counter(seconds, seconds_help, exchange.seconds_combine, {{"phase", "combine"}});
  out->Counter("moe_all_to_all_rows_total", "Rows sent to other ranks for their experts.",
               AsDouble(exchange.rows_sent));
  out->Counter("moe_expert_rebalances_total", "Changes of the placement to even the load out.",
               AsDouble(group.rebalances));
  out->Counter("moe_experts_loaded_total", "Experts that a rank loaded because it did not hold them.",
               AsDouble(group.experts_copied));
}

void WriteModel(const Engine& engine, MetricWriter* out) {
  const EngineInfo& info = engine.info();
  out->Gauge("moe_build_info", "The running version.", 1, {{"version", MOE_VERSION}, {"backend", info.backend}});
  out->Gauge("moe_model_info", "What is served.", 1,
             {{"architecture", engine.model().spec.architecture},
              {"weight_dtype", info.weight_dtype},
              {"ranks", std::to_string(info.ranks)},
              {"max_context_tokens", std::to_string(info.max_model_len)}});
  out->Gauge("moe_model_load_seconds", "How long loading and warming up took.", info.load_seconds);
}

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  std::lock_guard lock(mutex_);
  MetricWriter out({{"model", core_->host().name()}}, &memory_);
  WriteServer(*core_, &out);
  if (const ServedModel* served = core_->host().model(); served != nullptr) {
    const EngineStats stats = served->engine->Stats();
    WriteModel(*served->engine, &out);
    WriteRequests(stats, &out);
    WriteScheduler(stats, served->engine->info(), &out);
    WriteExperts(stats, per_expert_, &out);
    WriteRanks(stats, &out);
  }
  std::vector<prometheus::MetricFamily> families = out.Take();
  MetricWriter process({}, &memory_);
  WriteProcessMetrics(&process);
  for (prometheus::MetricFamily& family : process.Take()) families.push_back(std::move(family));
  return families;
}

std::string Metrics::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

}  // namespace moe
