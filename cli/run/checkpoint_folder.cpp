#include "cli/run/checkpoint_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include "cli/paths.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors";

std::optional<int64_t> stepOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size())
    return std::nullopt;
  name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t step = 0;
  const auto [stop, code] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (code != std::errc() || stop != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

}  // namespace

std::string checkpointPath(const std::string& folder, int64_t numStepsDone) {
  return (fs::path(folder) / fmt::format("{}{:08}{}", kPrefix, numStepsDone, kSuffix)).string();
}

Result<std::string> findCheckpoint(const std::string& fileOrFolder) {
  std::error_code code;
  const fs::file_status status = fs::status(fileOrFolder, code);
  if (!fs::exists(status))
    return Error(invalidArgument(fmt::format("{}: no such checkpoint", fileOrFolder)));
  if (!fs::is_directory(status)) return fileOrFolder;

  std::optional<int64_t> latest;
  std::string path;
  fs::directory_iterator entries(fileOrFolder, code);
  for (; !code && entries != fs::directory_iterator(); entries.increment(code)) {
    const std::optional<int64_t> step = stepOf(entries->path().filename().string());
    if (!step || (latest && *step <= *latest)) continue;
    latest = step;
    path = entries->path().string();
  }
  if (code)
    return Error(unavailable(fmt::format("{}: cannot read: {}", fileOrFolder, code.message())));
  if (!latest)
    return Error(invalidArgument(
        fmt::format("{}: no checkpoint ({}*{}) in this folder", fileOrFolder, kPrefix, kSuffix)));
  return path;
}

}  // namespace trireme::cli
