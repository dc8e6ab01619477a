#include "runtime/data/token_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "ir/base/hash.h"
#include "runtime/data/megatron_index.h"

namespace trireme::runtime {
namespace {

constexpr int64_t kBlock = 1024;  // tokens read at a time
constexpr int64_t kMaxTokenBytes = 8;

Status cannotRead(const std::string& path, std::string_view why) {
  return invalidArgument(fmt::format("data file {}: {}", path, why));
}

Status readBytes(const std::string& path, int fd, int64_t offset, int64_t count, char* bytes) {
  while (count > 0) {
    const ssize_t got = pread(fd, bytes, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannotRead(path, std::strerror(errno));
    if (got == 0) return cannotRead(path, "shrunk while in use");
    offset += got;
    bytes += got;
    count -= got;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenFiles>> TokenFiles::open(const std::vector<std::string>& paths,
                                                     const TokenFilesOptions& options) {
  if (paths.empty()) return Error(invalidArgument("no data file"));
  std::unique_ptr<TokenFiles> files(new TokenFiles);
  files->options_ = options;
  for (const std::string& path : paths)
    TRIREME_RETURN_IF_ERROR(path.ends_with(".idx") ? files->addDataset(path) : files->add(path));
  if (files->totalTokens_ <= options.sequenceLength)
    return Error(files->tooShort(options.sequenceLength));
  TRIREME_RETURN_IF_ERROR(files->checkTokens());
  TRIREME_ASSIGN_OR_RETURN(files->identity_, files->identify());
  return files;
}

TokenFiles::~TokenFiles() {
  for (const File& file : files_) close(file.fd);
}

Status TokenFiles::tooShort(int64_t length) const {
  const bool areBytes = std::all_of(files_.begin(), files_.end(),
                                    [](const File& file) { return file.type == TokenType::kU8; });
  return invalidArgument(
      fmt::format("the data is too short: {} {}, and a sample of {} tokens needs {}", totalTokens_,
                  areBytes ? "bytes" : "tokens", length, length + 1));
}

Result<int64_t> TokenFiles::openFile(const std::string& path, TokenType type) {
  // Non-blocking, so that a pipe without a writer is refused instead of waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error(cannotRead(path, std::strerror(errno)));
  files_.push_back({path, fd, type, totalTokens_, 0});
  struct stat info{};
  if (fstat(fd, &info) != 0) return Error(cannotRead(path, std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return Error(cannotRead(path, "not a regular file"));
  if (info.st_size == 0) return Error(cannotRead(path, "empty"));
  const int64_t bytes = tokenBytes(type);
  if (info.st_size % bytes != 0)
    return Error(cannotRead(path, fmt::format("{} bytes are no whole number of {}", info.st_size,
                                              tokenTypeName(type))));
  files_.back().size = info.st_size / bytes;
  totalTokens_ += files_.back().size;
  return static_cast<int64_t>(info.st_size);
}

Status TokenFiles::add(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN([[maybe_unused]] const int64_t bytes, openFile(path, options_.type));
  return {};
}

Status TokenFiles::addDataset(const std::string& indexPath) {
  TRIREME_ASSIGN_OR_RETURN(const int64_t bytes, openFile(indexPath, TokenType::kU8));
  const File file = files_.back();
  files_.pop_back();
  totalTokens_ -= file.size;
  const auto indexOf = [&]() -> Result<MegatronIndex> {
    std::string header(static_cast<size_t>(std::min(bytes, kMegatronHeaderBytes)), '\0');
    TRIREME_RETURN_IF_ERROR(
        readBytes(indexPath, file.fd, 0, static_cast<int64_t>(header.size()), header.data()));
    return parseMegatronIndex(header, bytes);
  };
  const Result<MegatronIndex> index = indexOf();
  // The last sequence says where the data ends.
  std::array<char, 4> length{};
  std::array<char, 8> place{};
  Status status = index.has_value() ? Status() : cannotRead(indexPath, index.error().message());
  if (status.ok() && index->numSequences > 0) {
    const int64_t lengths = kMegatronHeaderBytes, places = lengths + 4 * index->numSequences;
    status = readBytes(indexPath, file.fd, places - 4, 4, length.data());
    if (status.ok())
      status =
          readBytes(indexPath, file.fd, places + 8 * (index->numSequences - 1), 8, place.data());
  }
  close(file.fd);
  TRIREME_RETURN_IF_ERROR(status);
  const std::string dataPath = indexPath.substr(0, indexPath.size() - 4) + ".bin";
  TRIREME_ASSIGN_OR_RETURN(const int64_t dataBytes, openFile(dataPath, index->type));
  const int64_t end = loadToken(TokenType::kI64, place.data(), 0) +
                      loadToken(TokenType::kI32, length.data(), 0) * tokenBytes(index->type);
  if (end == dataBytes) return {};
  return cannotRead(dataPath,
                    fmt::format("{} bytes, but {} describes {}", dataBytes, indexPath, end));
}

Status TokenFiles::read(int64_t position, int64_t count, int64_t* tokens) const {
  auto file = std::upper_bound(files_.begin(), files_.end(), position,
                               [](int64_t at, const File& f) { return at < f.begin + f.size; });
  std::array<char, kBlock * kMaxTokenBytes> raw;
  while (count > 0) {
    const int64_t n = std::min({count, kBlock, file->begin + file->size - position});
    const int64_t bytes = tokenBytes(file->type);
    TRIREME_RETURN_IF_ERROR(
        readBytes(file->path, file->fd, (position - file->begin) * bytes, n * bytes, raw.data()));
    for (int64_t i = 0; i < n; ++i) tokens[i] = loadToken(file->type, raw.data(), i);
    tokens += n;
    position += n;
    count -= n;
    if (position == file->begin + file->size) ++file;
  }
  return {};
}

Status TokenFiles::refuse(int64_t position, int64_t token) const {
  for (const File& file : files_)
    if (position < file.begin + file.size)
      return invalidArgument(fmt::format("data file {}, {} {}: {} is not in the vocabulary of {}",
                                         file.path, file.type == TokenType::kU8 ? "byte" : "token",
                                         position - file.begin, token, options_.vocabSize));
  return internalError("a position outside the data");
}

// Of types in which a token may be outside of the vocabulary.
bool TokenFiles::mayHoldOthers(const File& file) const {
  if (file.type == TokenType::kU8) return options_.vocabSize < 1 << 8;
  return file.type != TokenType::kU16 || options_.vocabSize < 1 << 16;
}

Status TokenFiles::checkTokens() const {
  double all = 0;
  for (const File& file : files_)
    if (mayHoldOthers(file)) all += static_cast<double>(file.size * tokenBytes(file.type));
  const double checked = static_cast<double>(options_.checkedBytes) * options_.numParts;
  const double share = std::min(1.0, checked / all);
  int64_t done = 0;
  const auto count = [&](int64_t bytes) {
    done += bytes;
    if (options_.whileChecking)
      options_.whileChecking(done, static_cast<int64_t>(all * share / options_.numParts));
  };
  for (const File& file : files_) {
    if (!mayHoldOthers(file)) continue;
    const auto size = static_cast<int64_t>(std::ceil(static_cast<double>(file.size) * share));
    const int64_t parts = options_.numParts;
    const auto startOf = [&](int64_t part) {
      return size / parts * part + size % parts * part / parts;
    };
    TRIREME_RETURN_IF_ERROR(
        checkTokens(file, startOf(options_.part), startOf(options_.part + 1), count));
  }
  return {};
}

Status TokenFiles::checkTokens(const File& file, int64_t begin, int64_t end,
                               const std::function<void(int64_t)>& done) const {
  constexpr int64_t kCheckedBlock = 1 << 16;  // bytes: within the cache
  const int64_t bytes = tokenBytes(file.type), block = kCheckedBlock / bytes;
  std::vector<char> raw(kCheckedBlock);
  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    TRIREME_RETURN_IF_ERROR(readBytes(file.path, file.fd, at * bytes, n * bytes, raw.data()));
    done(n * bytes);
    if (tokensAreWithin(file.type, raw.data(), n, options_.vocabSize)) continue;
    for (int64_t i = 0; i < n; ++i)
      if (const int64_t token = loadToken(file.type, raw.data(), i);
          token < 0 || token >= options_.vocabSize)
        return refuse(file.begin + at + i, token);
  }
  return {};
}

Result<std::string> TokenFiles::identify() const {
  constexpr int64_t kEnd = 4096;
  std::string known, bytes;
  for (const File& file : files_) {
    const int64_t size = file.size * tokenBytes(file.type), length = std::min(size, kEnd);
    known += fmt::format("{} {} ", tokenTypeName(file.type), size);
    for (const int64_t offset : {int64_t{0}, size - length}) {
      bytes.resize(static_cast<size_t>(length));
      TRIREME_RETURN_IF_ERROR(readBytes(file.path, file.fd, offset, length, bytes.data()));
      known += bytes;
    }
  }
  return fmt::format("{} tokens in {} order, fingerprint {:016x}", totalTokens_,
                     sampleOrderName(options_.order), fnv1a(known));
}

Status TokenFiles::sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                          int32_t* labels) {
  if (totalTokens_ <= length) return tooShort(length);
  const int64_t start = positionOf(index, length);
  std::array<int64_t, kBlock> block;
  for (int64_t at = 0; at <= length; at += kBlock) {
    const int64_t n = std::min(kBlock, length + 1 - at);
    TRIREME_RETURN_IF_ERROR(read(start + at, n, block.data()));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t token = block[static_cast<size_t>(i)];
      if (token < 0 || token >= options_.vocabSize) return refuse(start + at + i, token);
      if (tokens != nullptr && at + i < length)
        tokens[(at + i) * stride] = static_cast<int32_t>(token);
      if (labels != nullptr && at + i > 0)
        labels[(at + i - 1) * stride] = static_cast<int32_t>(token);
    }
  }
  return {};
}

}  // namespace trireme::runtime
