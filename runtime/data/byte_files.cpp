#include "runtime/data/byte_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ir/base/rng.h"

namespace trireme::runtime {
namespace {

constexpr int64_t kBlock = 4096;  // bytes read at a time

Status cannotRead(const std::string& path, const char* why) {
  return invalidArgument(fmt::format("data file {}: {}", path, why));
}

}  // namespace

Result<std::unique_ptr<ByteFiles>> ByteFiles::open(const std::vector<std::string>& paths,
                                                   const ByteFilesOptions& options) {
  if (paths.empty()) return Error(invalidArgument("no data file"));
  std::unique_ptr<ByteFiles> files(new ByteFiles);
  files->options_ = options;
  for (const std::string& path : paths) TRIREME_RETURN_IF_ERROR(files->add(path));
  if (files->totalBytes_ <= options.sequenceLength)
    return Error(invalidArgument(
        fmt::format("the data is too short: {} bytes, and a sample of {} tokens needs {}",
                    files->totalBytes_, options.sequenceLength, options.sequenceLength + 1)));
  if (options.vocabSize < 256) TRIREME_RETURN_IF_ERROR(files->checkVocabulary());
  return files;
}

ByteFiles::~ByteFiles() {
  for (const File& file : files_) close(file.fd);
}

Status ByteFiles::add(const std::string& path) {
  File file;
  file.path = path;
  file.begin = totalBytes_;
  // Non-blocking, so that a pipe without a writer is refused instead of waited for.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return cannotRead(path, std::strerror(errno));
  files_.push_back(file);
  struct stat info{};
  if (fstat(file.fd, &info) != 0) return cannotRead(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return cannotRead(path, "not a regular file");
  if (info.st_size == 0) return cannotRead(path, "empty");
  files_.back().size = info.st_size;
  totalBytes_ += info.st_size;
  return {};
}

Status ByteFiles::read(int64_t position, int64_t count, uint8_t* bytes) const {
  auto file = std::upper_bound(files_.begin(), files_.end(), position,
                               [](int64_t at, const File& f) { return at < f.begin + f.size; });
  for (; count > 0; ++file) {
    while (count > 0 && position < file->begin + file->size) {
      const int64_t wanted = std::min(count, file->begin + file->size - position);
      const ssize_t got =
          pread(file->fd, bytes, static_cast<size_t>(wanted), position - file->begin);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return cannotRead(file->path, std::strerror(errno));
      if (got == 0) return cannotRead(file->path, "shrunk while in use");
      position += got;
      bytes += got;
      count -= got;
    }
  }
  return {};
}

Status ByteFiles::refuse(int64_t position, uint8_t byte) const {
  for (const File& file : files_)
    if (position < file.begin + file.size)
      return invalidArgument(fmt::format("data file {}, byte {}: {} is not in the vocabulary of {}",
                                         file.path, position - file.begin, byte,
                                         options_.vocabSize));
  return internalError("a position outside the data");
}

Status ByteFiles::checkVocabulary() const {
  std::array<uint8_t, kBlock> block;
  for (int64_t at = 0; at < totalBytes_; at += kBlock) {
    const int64_t n = std::min(kBlock, totalBytes_ - at);
    TRIREME_RETURN_IF_ERROR(read(at, n, block.data()));
    for (int64_t i = 0; i < n; ++i)
      if (block[static_cast<size_t>(i)] >= options_.vocabSize)
        return refuse(at + i, block[static_cast<size_t>(i)]);
  }
  return {};
}

int64_t ByteFiles::positionOf(uint64_t index, int64_t length) const {
  if (options_.order == SampleOrder::kSequential) {
    const auto numWindows = static_cast<uint64_t>((totalBytes_ - 1) / length);
    return static_cast<int64_t>(index % numWindows) * length;
  }
  const RngKey key = makeRngKey(options_.seed, 0, 0, RngStream::kDataShuffle);
  const RngWords words =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key);
  const uint64_t draw = (uint64_t{words[1]} << 32) | words[0];
  // Scaled, not taken modulo: every start is as likely as any other to 2^-64 of their number.
  const auto numStarts = static_cast<unsigned __int128>(totalBytes_ - length);
  return static_cast<int64_t>((numStarts * draw) >> 64);
}

Status ByteFiles::sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                         int32_t* labels) {
  if (totalBytes_ <= length)
    return invalidArgument(
        fmt::format("the data is too short: {} bytes, and a sample of {} tokens "
                    "needs {}",
                    totalBytes_, length, length + 1));
  const int64_t start = positionOf(index, length);
  std::array<uint8_t, kBlock> block;
  for (int64_t at = 0; at <= length; at += kBlock) {
    const int64_t n = std::min(kBlock, length + 1 - at);
    TRIREME_RETURN_IF_ERROR(read(start + at, n, block.data()));
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t byte = block[static_cast<size_t>(i)];
      if (byte >= options_.vocabSize) return refuse(start + at + i, byte);
      if (tokens != nullptr && at + i < length) tokens[(at + i) * stride] = byte;
      if (labels != nullptr && at + i > 0) labels[(at + i - 1) * stride] = byte;
    }
  }
  return {};
}

}  // namespace trireme::runtime
