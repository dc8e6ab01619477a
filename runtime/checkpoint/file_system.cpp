#include "runtime/checkpoint/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

namespace trireme::runtime {
namespace {

// `otherwise`: what the caller should do about an error that is not a lack of room.
Status errorOf(int error, const std::string& path, StatusCode otherwise) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const bool out = full || error == EMFILE || error == ENFILE || error == ENOMEM;
  return {out ? StatusCode::kResourceExhausted : otherwise,
          fmt::format("{}: {}{}", path,
                      error == EFBIG ? "beyond the limit (ulimit -f): "
                      : full         ? "the disk is full: "
                                     : "",
                      std::strerror(error))};
}

class Descriptor {
 public:
  Descriptor(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

class PosixOutput final : public OutputFile {
 public:
  PosixOutput(int fd, const std::string& path) : file_(fd, path) {}
  Status write(int64_t offset, const char* bytes, int64_t count) override {
    while (count > 0) {
      const ssize_t n = pwrite(file_.fd(), bytes, static_cast<size_t>(count), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return errorOf(n < 0 ? errno : ENOSPC, file_.path(), StatusCode::kUnavailable);
      bytes += n;
      offset += n;
      count -= n;
    }
    return {};
  }
  Status sync() override {
    if (fsync(file_.fd()) == 0) return {};
    return errorOf(errno, file_.path(), StatusCode::kUnavailable);
  }

 private:
  Descriptor file_;
};

class PosixInput final : public InputFile {
 public:
  PosixInput(int fd, const std::string& path, int64_t size) : file_(fd, path), size_(size) {}
  int64_t size() const override { return size_; }
  Status read(int64_t offset, char* bytes, int64_t count) const override {
    while (count > 0) {
      const ssize_t n = pread(file_.fd(), bytes, static_cast<size_t>(count), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errorOf(errno, file_.path(), StatusCode::kUnavailable);
      if (n == 0) return invalidArgument(fmt::format("{}: truncated", file_.path()));
      bytes += n;
      offset += n;
      count -= n;
    }
    return {};
  }

 private:
  Descriptor file_;
  int64_t size_;
};

}  // namespace

Result<std::unique_ptr<OutputFile>> PosixFileSystem::create(const std::string& path) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (struct stat info{}; fd < 0 && errno == EEXIST && stat(path.c_str(), &info) == 0) {
    errno = EEXIST;
    if (S_ISCHR(info.st_mode)) fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  }
  if (fd < 0) return Error(errorOf(errno, path, StatusCode::kInvalidArgument));
  return std::make_unique<PosixOutput>(fd, path);
}

Result<std::unique_ptr<InputFile>> PosixFileSystem::open(const std::string& path) {
  // Non-blocking, so that a pipe is refused instead of waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error(errorOf(errno, path, StatusCode::kInvalidArgument));
  struct stat info{};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  auto file = std::make_unique<PosixInput>(fd, path, regular ? info.st_size : 0);
  if (!regular) return Error(invalidArgument(fmt::format("{}: not a regular file", path)));
  return file;
}

Status PosixFileSystem::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    return errorOf(errno, to, StatusCode::kInvalidArgument);
  std::string folder = std::filesystem::path(to).parent_path().string();
  if (folder.empty()) folder = ".";
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errorOf(errno, folder, StatusCode::kUnavailable);
  const Descriptor directory(fd, folder);
  // Some file systems cannot sync a directory and say EINVAL; there it need not be.
  if (fsync(fd) != 0 && errno != EINVAL) return errorOf(errno, folder, StatusCode::kUnavailable);
  return {};
}

void PosixFileSystem::remove(const std::string& path) { unlink(path.c_str()); }

Status replaceFile(const std::string& path, FileSystem& files,
                   const std::function<Status(OutputFile&)>& write) {
  std::random_device random;
  const std::string partial = fmt::format("{}.{}-{:08x}{}", path, getpid(), random(), kUnfinished);
  const auto writePartial = [&]() -> Status {
    TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files.create(partial));
    return write(*file);
  };
  Status status = writePartial();
  if (status.ok()) status = files.rename(partial, path);
  if (!status.ok()) files.remove(partial);
  return status;
}

}  // namespace trireme::runtime
