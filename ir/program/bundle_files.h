// Whole files and folders, written so that a crash leaves the old or the new. Internal to
// ir/program.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ir/base/status.h"

namespace trireme::program {

// kInvalidArgument: missing, not a file, or not readable.
Result<std::string> readWholeFile(const std::string& path);

// Flushed to the disk before it returns. kResourceExhausted: disk full. kInvalidArgument: any other
// failure.
Status writeWholeFile(const std::string& path, std::string_view bytes);

// Removes a folder that holds nothing but files; one that is not there, or that somebody else
// removes, is fine.
Status removeFolder(const std::string& path);
bool exists(const std::string& path);

// A folder that is written and not yet in its place. It is locked as long as this lives: one that
// nobody has locked was left by a process that was killed.
class PartialFolder {
 public:
  PartialFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
};

// A new folder beside `folder`, named `folder`.partial.*, that nobody else has; those that `folder`
// is to lie in are made, too, and those that others have left are removed. Where the file system
// has no locks they stay.
Result<std::unique_ptr<PartialFolder>> makePartialFolder(const std::string& folder);

// Exchanges two folders in one step: 0, or errno.
using ExchangeFolders = int (*)(const char* one, const char* other);
int exchangeFolders(const char* one, const char* other);

// `folder` becomes what `partial` is; an existing `folder` is exchanged in one step and then
// removed. Of several that do so at once the last one wins. Where the file system cannot exchange
// (EINVAL, ENOSYS), the old one lies under a name of its own for the moment between two renames.
Status moveIntoPlace(const std::string& partial, const std::string& folder,
                     ExchangeFolders exchange = exchangeFolders);

}  // namespace trireme::program
