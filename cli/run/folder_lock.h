// One run at a time saves into a folder: two would continue each other's training, unseen.
#pragma once
#include <memory>
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

// Holds the folder's lock until it is destroyed, or the process ends however it does. The lock is
// advisory, on the file .lock, which goes with it; one that a killed run left does not matter.
class FolderLock {
 public:
  // Null: the file system has no locks, or no room for one; the run goes on without.
  // kUnavailable: another run holds it; names the folder and, if known, that run.
  static Result<std::unique_ptr<FolderLock>> take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  FolderLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

}  // namespace trireme::cli
