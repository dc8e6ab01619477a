#include "cli/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace trireme::cli {
namespace {

Status cannotWrite(const std::string& path) {
  const int code = errno;
  const std::string message = fmt::format("{}: cannot write: {}", path, std::strerror(code));
  return code == ENOSPC || code == EDQUOT ? resourceExhausted(message) : unavailable(message);
}

bool writeAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

// Names the file by `path` in messages.
Status writeTo(const std::string& place, const std::string& text, bool sync,
               const std::string& path) {
  const int fd = open(place.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return cannotWrite(path);
  Status status;
  if (!writeAll(fd, text) || (sync && fsync(fd) != 0)) status = cannotWrite(path);
  if (close(fd) != 0 && status.ok()) status = cannotWrite(path);
  return status;
}

// Written through the descriptor that is open: a second one would have an offset of its own.
Status writeToStandardOutput(const std::string& text, const std::string& path) {
  if (std::fflush(stdout) != 0 || !writeAll(STDOUT_FILENO, text)) return cannotWrite(path);
  return {};
}

bool isStandardOutput(const struct stat& file) {
  struct stat out{};
  return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == file.st_dev && out.st_ino == file.st_ino;
}

}  // namespace

Status writeFile(const std::string& path, const std::string& text) {
  struct stat info{};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return cannotWrite(path);
  }
  if (exists && isStandardOutput(info)) return writeToStandardOutput(text, path);
  if (exists && !S_ISREG(info.st_mode)) return writeTo(path, text, false, path);

  // What a link leads to is replaced, not the link.
  std::error_code code;
  const std::string target = exists ? std::filesystem::canonical(path, code).string() : path;
  if (code) {
    errno = code.value();
    return cannotWrite(path);
  }
  const std::string partial = fmt::format("{}.partial.{}", target, getpid());
  Status status = writeTo(partial, text, true, path);
  if (status.ok() && std::rename(partial.c_str(), target.c_str()) != 0) status = cannotWrite(path);
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

}  // namespace trireme::cli
