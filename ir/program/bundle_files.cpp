#include "ir/program/bundle_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

namespace trireme::program {
namespace {

namespace fs = std::filesystem;

Status failure(const std::string& path, const char* what, int error) {
  std::string message = fmt::format("{}: cannot {}: {}", path, what, std::strerror(error));
  const bool exhausted = error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE;
  return exhausted ? resourceExhausted(std::move(message)) : invalidArgument(std::move(message));
}

// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Makes renames inside the folder durable.
Status syncFolder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) return failure(path, "flush", errno);
  return {};
}

std::string parentOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// A name that nobody else has or will take.
std::string uniqueName(const std::string& folder, const char* what) {
  std::random_device random;
  return fmt::format("{}{}.{}-{:08x}", folder, what, getpid(), random());
}

// Whether the path still leads to the open folder.
bool isAt(const std::string& path, int fd) {
  struct stat named{}, opened{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

int lockFolder(int fd, int how) {
  int result = 0;
  do result = ::flock(fd, LOCK_EX | how);
  while (result != 0 && errno == EINTR);
  return result;
}

constexpr const char* kPartial = ".partial";

// Of uniqueName(): a process and eight hexadecimal digits.
bool isUniqueNameOf(std::string_view name, std::string_view base) {
  constexpr size_t kRandomDigits = 8;
  if (!name.starts_with(base)) return false;
  name.remove_prefix(base.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos || dash < 2 || name.front() != '.' ||
      name.size() - dash - 1 != kRandomDigits)
    return false;
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(name.begin() + 1, name.begin() + static_cast<std::ptrdiff_t>(dash), isDigit) &&
         name.find_first_not_of("0123456789abcdef", dash + 1) == std::string_view::npos;
}

// Failures do not matter: what is left now goes the next time.
void removeAbandoned(const std::string& folder) {
  const std::string base = fs::path(folder).filename().string() + kPartial;
  std::vector<std::string> found;
  std::error_code error;
  for (auto it = fs::directory_iterator(parentOf(folder), error);
       !error && it != fs::directory_iterator(); it.increment(error))
    if (isUniqueNameOf(it->path().filename().string(), base)) found.push_back(it->path().string());
  for (const std::string& path : found) {
    const Descriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (lock.get() >= 0 && lockFolder(lock.get(), LOCK_NB) == 0)
      static_cast<void>(removeFolder(path));
  }
}

bool isInTheWay(int error) { return error == ENOTEMPTY || error == EEXIST; }

// Where a file system cannot exchange: for a moment there is only the old one, under another name.
// False: somebody else was faster, and theirs has to be replaced.
Result<bool> replaceInTwoSteps(const std::string& partial, const std::string& folder) {
  std::string old = uniqueName(folder, ".old");
  while (exists(old)) old = uniqueName(folder, ".old");
  if (::rename(folder.c_str(), old.c_str()) != 0) {
    if (errno == ENOENT) return false;
    return Error(failure(folder, "replace", errno));
  }
  const bool isDone = ::rename(partial.c_str(), folder.c_str()) == 0;
  if (const int error = errno; !isDone && !isInTheWay(error)) {
    static_cast<void>(::rename(old.c_str(), folder.c_str()));
    return Error(failure(folder, "replace", error));
  }
  TRIREME_RETURN_IF_ERROR(syncFolder(parentOf(folder)));
  TRIREME_RETURN_IF_ERROR(removeFolder(old));
  return isDone;
}

}  // namespace

Result<std::string> readWholeFile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return Error(failure(path, "open", errno));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return Error(failure(path, "read", errno));
  if (!S_ISREG(info.st_mode)) return Error(invalidArgument(path + ": not a file"));
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(failure(path, "read", errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Status writeWholeFile(const std::string& path, std::string_view bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return failure(path, "create", errno);
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure(path, "write", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(file.get()) != 0) return failure(path, "flush", errno);
  return {};
}

Status removeFolder(const std::string& path) {
  if (!exists(path)) return {};
  std::error_code error;
  std::vector<fs::path> files;
  auto it = fs::directory_iterator(path, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->is_directory(error))
      return invalidArgument(fmt::format("{}: holds a folder, so it is none of ours", path));
    files.push_back(it->path());
  }
  for (const fs::path& file : files)
    if (!error) fs::remove(file, error);
  if (!error) fs::remove(path, error);
  return error ? failure(path, "remove", error.value()) : Status();
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

PartialFolder::~PartialFolder() {
  if (fd_ >= 0) ::close(fd_);
}

// Between its making and its lock somebody may take it for one that was left, and remove it.
Result<std::unique_ptr<PartialFolder>> makePartialFolder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(parentOf(folder), error);
  if (error) return Error(failure(folder, "create", error.value()));
  removeAbandoned(folder);
  while (true) {
    const std::string path = uniqueName(folder, kPartial);
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return Error(failure(folder, "create", errno));
    }
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) return Error(failure(folder, "create", errno));
    if (fd < 0) continue;
    auto made = std::make_unique<PartialFolder>(path, fd);
    static_cast<void>(lockFolder(fd, 0));
    if (isAt(path, fd)) return made;
  }
}

int exchangeFolders(const char* one, const char* other) {
  return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0 ? 0 : errno;
}

// Others may put a bundle there or replace it between any two calls: then it is tried again.
Status moveIntoPlace(const std::string& partial, const std::string& folder,
                     ExchangeFolders exchange) {
  constexpr int kMostAttempts = 1000;
  TRIREME_RETURN_IF_ERROR(syncFolder(partial));
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (::rename(partial.c_str(), folder.c_str()) == 0) return syncFolder(parentOf(folder));
    if (!isInTheWay(errno)) return failure(folder, "create", errno);
    const int error = exchange(partial.c_str(), folder.c_str());
    if (error == 0) {
      TRIREME_RETURN_IF_ERROR(syncFolder(parentOf(folder)));
      return removeFolder(partial);
    }
    if (error == EINVAL || error == ENOSYS) {
      TRIREME_ASSIGN_OR_RETURN(const bool isDone, replaceInTwoSteps(partial, folder));
      if (isDone) return {};
    } else if (error != ENOENT) {
      return failure(folder, "replace", error);
    }
  }
  return failure(folder, "replace", EBUSY);
}

}  // namespace trireme::program
