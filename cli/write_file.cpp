#include "cli/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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

}  // namespace

Status writeFile(const std::string& path, const std::string& text) {
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return cannotWrite(path);
  }
  if (exists && !S_ISREG(info.st_mode)) return writeTo(path, text, false, path);

  const std::string partial = fmt::format("{}.partial.{}", path, getpid());
  Status status = writeTo(partial, text, true, path);
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) status = cannotWrite(path);
  if (!status.ok()) unlink(partial.c_str());
  return status;
}

}  // namespace trireme::cli
