#include "server/commands/model_loading.h"

#include <cmath>
#include <memory>
#include <utility>

#include "engine/tools/exhaustion.h"
#include "loaders/model_files.h"
#include "parallel/base/log.h"
#include "server/commands/rank_processes.h"
#include "server/server_core.h"

namespace moe {
namespace {

// A model that is there in a moment needs no progress lines.
constexpr std::chrono::seconds kQuietStart{1};
constexpr std::chrono::seconds kLineInterval{3};

}  // namespace

ModelLoading::~ModelLoading() {
  if (thread_.joinable()) thread_.join();
}

void ModelLoading::Start() {
  started_ = logged_at_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] {
    result_ = CatchExhaustion([this] { return Load(); });
    if (!result_.ok()) core_->host().SetLoadFailed(result_);
    finished_ = true;
  });
}

Status ModelLoading::Join() {
  if (thread_.joinable()) thread_.join();
  return result_;
}

Status ModelLoading::Load() {
  std::unique_ptr<ModelFiles> files;
  if (options_.model.empty()) {
    files = OpenEmbeddedDemo();
  } else {
    MOE_ASSIGN_OR_RETURN(files, OpenModelDirectory(options_.model));
  }
  Progress({"reading the checkpoint", 0});
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, LoadModel(*files, LoadOptions{}));
  if (ranks_ != nullptr) MOE_RETURN_IF_ERROR(LaunchLocalRanks(options_, ranks_.get()));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                       Engine::Create(
                           std::move(model), options_.engine,
                           [this](const LoadProgress& progress) { Progress(progress); }, std::move(ranks_)));
  core_->host().SetModel(std::make_unique<ServedModel>(core_->host().name(), std::move(engine)));
  return Status();
}

void ModelLoading::Progress(const LoadProgress& progress) {
  core_->host().SetProgress(progress);
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  const bool new_stage = progress.stage != logged_stage_;
  if (now - started_ < kQuietStart || (!new_stage && now - logged_at_ < kLineInterval)) return;
  logged_stage_ = progress.stage;
  logged_at_ = now;
  MOE_LOG(kInfo) << "loading: " << progress.stage << ", " << std::lround(progress.fraction * 100) << " %";
}

}  // namespace moe
