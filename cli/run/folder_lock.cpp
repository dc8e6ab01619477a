#include "cli/run/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

namespace trireme::cli {
namespace {

// Of its holder, for others to read; only a help, so failures do not matter.
void writeHolder(int fd) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string text = fmt::format("process {} on {}", getpid(), host.data());
  static_cast<void>(!ftruncate(fd, 0));
  static_cast<void>(!pwrite(fd, text.data(), text.size(), 0));
}

std::string readHolder(int fd) {
  std::array<char, 512> text{};
  const ssize_t count = pread(fd, text.data(), text.size(), 0);
  return count > 0 ? std::string(text.data(), static_cast<size_t>(count)) : "another run";
}

// Whether the path still leads to the open file: its last holder may just have removed it.
bool isAt(const std::string& path, int fd) {
  struct stat named{}, opened{};
  return stat(path.c_str(), &named) == 0 && fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

}  // namespace

Result<std::unique_ptr<FolderLock>> FolderLock::take(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / ".lock").string();
  while (true) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return nullptr;
    int result = 0;
    do result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result != 0) {
      const bool isHeld = errno == EWOULDBLOCK;
      const std::string holder = isHeld ? readHolder(fd) : "";
      close(fd);
      if (!isHeld) return nullptr;
      return Error(unavailable(
          fmt::format("--save {}: {} is saving into this folder; give another, or wait for its end",
                      folder, holder)));
    }
    std::unique_ptr<FolderLock> lock(new FolderLock(path, fd));
    if (isAt(path, fd)) {
      writeHolder(fd);
      return lock;
    }
    lock->path_.clear();
  }
}

// Removed while it is held: whoever opened it before finds that it is no longer at its path.
FolderLock::~FolderLock() {
  if (!path_.empty() && isAt(path_, fd_)) unlink(path_.c_str());
  close(fd_);
}

}  // namespace trireme::cli
