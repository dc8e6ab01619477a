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
  TRIREME_RETURN_IF_ERROR(status);
  return impl_->storeAllWeights();
}

// After a failed step the ranks have diverged: there is nothing worth keeping.
Status Session::saveCheckpoint(const std::string& path, FileSystem& files) const {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  TRIREME_RETURN_IF_ERROR(impl_->fetchCheckpointState());
  return runtime::saveCheckpoint(impl_->trainingState(), impl_->progress, path, files);
}

Status Session::loadCheckpoint(const std::string& path, FileSystem& files) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  Result<TrainedSoFar> progress = runtime::loadCheckpoint(impl_->trainingState(), path, files);
  if (!progress.has_value()) {
    if (progress.error().code() == StatusCode::kUnavailable) impl_->failure = progress.error();
    return progress.error();
  }
  TRIREME_RETURN_IF_ERROR(impl_->storeAllWeights());
  impl_->progress = std::move(*progress);
  return {};
}

}  // namespace trireme::runtime
