#include "runtime/device/cuda/matmul_cache.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>
#include <vector>

#include "ir/program/checksum.h"

namespace trireme::runtime::cuda {
namespace {

constexpr size_t kFields = 5;
constexpr int64_t kLargestFile = int64_t{1} << 24;

std::string titleOf(const std::string& kind) {
  return "trireme 1: algorithms of cuBLASLt on " + kind;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> parseNumber(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parseMicroseconds(std::string_view text) {
  constexpr std::string_view kUnit = " us";
  if (!text.ends_with(kUnit)) return std::nullopt;
  text.remove_suffix(kUnit.size());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::array<uint64_t, 8>> parseAlgorithm(std::string_view text) {
  constexpr size_t kDigits = 16;
  std::array<uint64_t, 8> words{};
  if (text.size() != words.size() * kDigits) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto word = parseNumber<uint64_t>(text.substr(i * kDigits, kDigits), 16);
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  return words;
}

Result<std::string> readAll(const std::string& path, FileSystem& files) {
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.open(path));
  if (file->size() > kLargestFile) return Error(invalidArgument(path + ": too long"));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TRIREME_RETURN_IF_ERROR(file->read(0, text.data(), file->size()));
  return text;
}

}  // namespace

std::string printTimed(const std::string& key, const TimedAlgorithm& timed) {
  std::string line = fmt::format("{}\t{:.1f} us\t{}\t", key, 1e6 * timed.time.count(),
                                 timed.algorithm.workspaceBytes);
  for (const uint64_t word : timed.algorithm.words) line += fmt::format("{:016x}", word);
  return line + fmt::format("\t{:08x}", program::crc32c(line));
}

Result<TimedAlgorithms::value_type> parseTimed(const std::string& line) {
  const Error damaged(invalidArgument("no line of a timed algorithm, or a damaged one"));
  const std::vector<std::string_view> fields = split(line, '\t');
  if (fields.size() != kFields) return damaged;
  const std::string_view body(line.data(), line.size() - fields.back().size() - 1);
  if (parseNumber<uint32_t>(fields[4], 16) != program::crc32c(body)) return damaged;
  const auto microseconds = parseMicroseconds(fields[1]);
  const auto workspace = parseNumber<int64_t>(fields[2], 10);
  const auto words = parseAlgorithm(fields[3]);
  if (!microseconds || !workspace || *workspace < 0 || !words) return damaged;
  const TimedAlgorithm timed{{.words = *words, .workspaceBytes = *workspace},
                             Seconds(1e-6 * *microseconds)};
  return TimedAlgorithms::value_type(fields[0], timed);
}

std::string matmulCachePath(const std::string& folder, const std::string& kind) {
  std::string name;
  for (const char c : kind)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.')
      name += c;
    else if (!name.ends_with('-'))
      name += '-';
  return (std::filesystem::path(folder) / ("matmul-" + name + ".txt")).string();
}

MatmulCache readMatmulCache(const std::string& path, const std::string& kind, FileSystem& files) {
  MatmulCache cache;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return cache;
  const Result<std::string> text = readAll(path, files);
  if (!text.has_value()) {
    cache.note = fmt::format("{}; matrix products are timed anew", text.error().message());
    return cache;
  }
  std::vector<std::string_view> lines = split(*text, '\n');
  if (lines.front() != titleOf(kind)) {
    cache.note = fmt::format("{} is not of {}; matrix products are timed anew", path, kind);
    return cache;
  }
  int64_t numDamaged = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const auto timed = parseTimed(std::string(lines[i]));
    if (timed.has_value())
      cache.timed.insert(*timed);
    else
      ++numDamaged;
  }
  if (numDamaged > 0) cache.note = fmt::format("{}: damaged lines left out: {}", path, numDamaged);
  return cache;
}

Status writeMatmulCache(const std::string& path, const std::string& kind,
                        const TimedAlgorithms& timed, FileSystem& files) {
  std::string text = titleOf(kind) + '\n';
  for (const auto& [key, algorithm] : timed) text += printTimed(key, algorithm) + '\n';
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return unavailable(fmt::format("{}: {}", folder, error.message()));
  return replaceFile(path, files, [&](OutputFile& file) -> Status {
    TRIREME_RETURN_IF_ERROR(file.write(0, text.data(), std::ssize(text)));
    return file.sync();
  });
}

}  // namespace trireme::runtime::cuda
