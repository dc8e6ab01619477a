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
  return status;
}

// After a failed step the ranks have diverged: there is nothing worth keeping.
Status Session::saveCheckpoint(const std::string& path, FileSystem& files) const {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  return runtime::saveCheckpoint(impl_->trainingState(), impl_->stepsDone, path, files);
}

Status Session::loadCheckpoint(const std::string& path, FileSystem& files) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  Result<int64_t> stepsDone = runtime::loadCheckpoint(impl_->trainingState(), path, files);
  if (!stepsDone.has_value()) {
    if (stepsDone.error().code() == StatusCode::kUnavailable) impl_->failure = stepsDone.error();
    return stepsDone.error();
  }
  impl_->stepsDone = *stepsDone;
  return {};
}

}  // namespace trireme::runtime
