#include "tests/engine/model/test_model.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace moe {
namespace {

constexpr int64_t kRollbackSlots = 16;  // slices with guesses in one step

std::unique_ptr<Backend> MakeBackend(const TestModelOptions& options, WorkerPool* pool) {
  const DType act = options.format == DType::kBF16 ? DType::kBF16 : DType::kF32;
  if (options.backend == "reference") return CreateReferenceBackend(act);
  auto backend = CreateCpuBackend(options.backend, act, pool);
  MOE_CHECK(backend.ok()) << backend.status();
  return std::move(*backend);
}

std::unique_ptr<ModelFiles> OpenOrDie(const std::string& directory) {
  auto files = OpenModelDirectory(directory);
  MOE_CHECK(files.ok()) << files.status();
  return std::move(*files);
}

}  // namespace

TestModel::TestModel(const std::string& directory, const TestModelOptions& options)
    : TestModel(OpenOrDie(directory), options) {}

TestModel::TestModel(std::unique_ptr<ModelFiles> files, const TestModelOptions& options) : files_(std::move(files)) {
  auto config = files_->Open("config.json");
  MOE_CHECK(config.ok()) << config.status();
  auto description = ReadModelConfig((*config)->text(), "config.json", options.table);
  MOE_CHECK(description.ok()) << description.status();
  spec_ = std::move(description->spec);
  auto store = OpenWeightStore(*files_, &spec_, description->rules);
  MOE_CHECK(store.ok()) << store.status();
  store_ = std::move(*store);

  pack_pool_ = std::make_unique<WorkerPool>(options.threads);
  packer_ = MakeBackend(options, pack_pool_.get());
  auto packed = PackModel(spec(), *store_, options.format, packer_.get(), pack_pool_.get(), nullptr);
  MOE_CHECK(packed.ok()) << packed.status();
  packed_ = std::move(*packed);
  for (int64_t l : spec().MoeLayers()) {
    const int64_t experts = std::get<MoeSpec>(spec().layers[l].ffn).num_experts;
    placements_.push_back(options.round_robin ? ExpertPlacement::RoundRobin(experts, options.ranks)
                                              : ExpertPlacement::Linear(experts, options.ranks));
  }
  auto group = CreateInProcessGroup(options.ranks, std::chrono::seconds(60));
  std::vector<std::unique_ptr<RankWorker>> workers;
  for (int r = 0; r < options.ranks; ++r) {
    auto pool = std::make_unique<WorkerPool>(options.threads);
    auto backend = MakeBackend(options, pool.get());
    auto worker = RankWorker::Create({.spec = &spec(),
                                      .weights = packed_.get(),
                                      .placements = placements_,
                                      .kv_blocks = options.kv_blocks,
                                      .state_slots = options.state_slots,
                                      .rollback_slots = kRollbackSlots},
                                     std::move(pool), std::move(backend), std::move(group[r]));
    MOE_CHECK(worker.ok()) << worker.status();
    workers.push_back(std::move(*worker));
    std::vector<int32_t>& blocks = free_blocks_.emplace_back();
    for (int64_t b = options.kv_blocks; b-- > 0;) blocks.push_back(static_cast<int32_t>(b));
    std::vector<int32_t>& slots = free_slots_.emplace_back();
    for (int64_t b = options.state_slots; b-- > 0;) slots.push_back(static_cast<int32_t>(b));
  }
  drops_.resize(options.ranks);
  ranks_ = CreateLocalRanks(std::move(workers), std::make_shared<const std::vector<ExpertPlacement>>(placements_));
}

TestSequence* TestModel::Add(std::vector<int32_t> prompt, int rank) {
  auto sequence = std::make_unique<TestSequence>();
  sequence->rank = rank;
  sequence->init.id = sequences_.size() + 1;
  sequence->init.prompt_len = static_cast<int64_t>(prompt.size());
  sequence->init.tokens = std::move(prompt);
  sequence->init.sampling.temperature = 0;
  sequences_.push_back(std::move(sequence));
  return sequences_.back().get();
}

void TestModel::Step(const std::vector<Part>& parts) {
  StepPlan plan;
  plan.step = ++step_;
  plan.ranks.resize(ranks_->num_ranks());
  for (int r = 0; r < ranks_->num_ranks(); ++r) plan.ranks[r].drop = std::exchange(drops_[r], {});
  std::vector<std::vector<TestSequence*>> order(plan.ranks.size());
  for (const Part& part : parts) {
    TestSequence& s = *part.sequence;
    RankPlan& rank = plan.ranks[s.rank];
    SlicePlan slice;
    if (!s.admitted) {
      s.admitted = true;
      slice.new_blocks = s.blocks;
      if (spec().HasRecurrentState()) {
        MOE_CHECK(!free_slots_[s.rank].empty());
        s.init.state_slot = free_slots_[s.rank].back();
        free_slots_[s.rank].pop_back();
      }
      rank.admit.push_back(s.init);
    }
    slice.id = s.init.id;
    slice.first_pos = s.computed;
    const auto known = static_cast<int64_t>(s.init.tokens.size());
    const int64_t border = s.computed < s.init.prompt_len ? s.init.prompt_len : known;
    slice.count = std::min(part.count, border - s.computed);
    s.computed += slice.count;
    slice.sample = s.computed == known;
    if (slice.sample && slice.first_pos >= s.init.prompt_len) {
      slice.draft = part.draft;
      slice.count += static_cast<int64_t>(part.draft.size());
      s.computed += static_cast<int64_t>(part.draft.size());
    }
    while (static_cast<int64_t>(s.blocks.size()) * kKvBlockTokens < s.computed) {
      MOE_CHECK(!free_blocks_[s.rank].empty());
      s.blocks.push_back(free_blocks_[s.rank].back());
      slice.new_blocks.push_back(s.blocks.back());
      free_blocks_[s.rank].pop_back();
    }
    order[s.rank].push_back(&s);
    rank.slices.push_back(std::move(slice));
  }
  // Every other step says how many rows a rank has at most: the ranks then exchange them padded.
  int64_t most_rows = 0;
  for (const RankPlan& rank : plan.ranks) {
    int64_t rows = 0;
    for (const SlicePlan& slice : rank.slices) rows += slice.count;
    most_rows = std::max(most_rows, rows);
  }
  for (RankPlan& rank : plan.ranks) rank.most_rows = step_ % 2 == 0 ? most_rows : 0;
  auto result = ranks_->Step(plan);
  MOE_CHECK(result.ok()) << result.status();
  for (size_t r = 0; r < result->ranks.size(); ++r) {
    RankResult& rank = result->ranks[r];
    expert_tokens_.resize(rank.expert_tokens.size());
    for (size_t i = 0; i < rank.expert_tokens.size(); ++i) expert_tokens_[i] += rank.expert_tokens[i];
    for (size_t i = 0; i < rank.slices.size(); ++i) {
      TestSequence& s = *order[r][i];
      SliceResult& slice = rank.slices[i];
      const SlicePlan& planned = plan.ranks[r].slices[i];
      const bool all_true = slice.accepted() == static_cast<int64_t>(planned.draft.size());
      const bool taken_back = !all_true && DraftRollback::Needed(spec());
      s.computed = planned.first_pos + (taken_back ? 0 : KeptRows(planned, slice));
      s.not_finite = s.not_finite || slice.not_finite;
      s.prompt_tokens.insert(s.prompt_tokens.end(), slice.prompt_tokens.begin(), slice.prompt_tokens.end());
      // A replayed position has given its rows before.
      const auto width = static_cast<int64_t>(slice.expert_ids.size()) / KeptRows(planned, slice);
      const int64_t first = width > 0 ? planned.first_pos * width : 0;
      s.expert_ids.resize(std::min(static_cast<int64_t>(s.expert_ids.size()), first));
      s.expert_ids.insert(s.expert_ids.end(), slice.expert_ids.begin(), slice.expert_ids.end());
      for (TokenInfo& token : slice.tokens) {
        s.init.tokens.push_back(token.id);
        s.tokens.push_back(std::move(token));
      }
    }
  }
}

void TestModel::Run(const std::vector<TestSequence*>& sequences, int64_t new_tokens, int64_t chunk) {
  for (;;) {
    std::vector<Part> parts;
    for (TestSequence* s : sequences) {
      if (static_cast<int64_t>(s->tokens.size()) < new_tokens) parts.push_back({s, chunk});
    }
    if (parts.empty()) return;
    Step(parts);
  }
}

void TestModel::Drop(TestSequence* sequence) {
  const int rank = sequence->rank;
  drops_[rank].push_back(sequence->init.id);
  free_blocks_[rank].insert(free_blocks_[rank].end(), sequence->blocks.begin(), sequence->blocks.end());
  if (sequence->init.state_slot >= 0) free_slots_[rank].push_back(sequence->init.state_slot);
}

}  // namespace moe
