#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/foreign.h"
#include "runtime/session_impl.h"

namespace trireme::runtime {

Status Session::saveCheckpoint(const std::string& path) const {
  PosixFileSystem files;
  return saveCheckpoint(path, files);
}

Status Session::loadCheckpoint(const std::string& path) {
  PosixFileSystem files;
  return loadCheckpoint(path, files);
}

Status Session::loadForeignWeights(const ForeignWeights& weights, const std::string& path) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  PosixFileSystem files;
  const Status status = runtime::loadForeignWeights(impl_->trainingState(), weights, path, files);
  if (status.code() == StatusCode::kUnavailable) impl_->failure = status;
  TRIREME_RETURN_IF_ERROR(impl_->shared(status));
  return impl_->shared(impl_->storeAllWeights());
}

// After a failed step the ranks have diverged: there is nothing worth keeping.
Status Session::saveCheckpoint(const std::string& path, FileSystem& files) const {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  TRIREME_RETURN_IF_ERROR(impl_->shared(impl_->fetchCheckpointState()));
  const TrainingState state = impl_->trainingState();
  const bool writes = state.others == nullptr || state.others->gathersHere();
  TRIREME_RETURN_IF_ERROR(
      impl_->shared(writes ? runtime::saveCheckpoint(state, impl_->progress, path, files)
                           : contributeToCheckpoint(state)));
  return impl_->agreeOn(
      {{"number of steps in the checkpoint", std::to_string(impl_->progress.stepsDone)}});
}

Status Session::loadCheckpoint(const std::string& path, FileSystem& files) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  Result<TrainedSoFar> progress = runtime::loadCheckpoint(impl_->trainingState(), path, files);
  if (!progress.has_value()) {
    if (progress.error().code() == StatusCode::kUnavailable) impl_->failure = progress.error();
    return impl_->shared(progress.error());
  }
  impl_->progress.lossScaling = progress->lossScaling;
  TRIREME_RETURN_IF_ERROR(impl_->shared(impl_->storeAllWeights()));
  TRIREME_RETURN_IF_ERROR(
      impl_->agreeOn({{"number of steps in the checkpoint", std::to_string(progress->stepsDone)}}));
  impl_->progress = std::move(*progress);
  return {};
}

}  // namespace trireme::runtime
