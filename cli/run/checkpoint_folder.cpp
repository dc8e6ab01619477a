#include "cli/run/checkpoint_folder.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/paths.h"
#include "runtime/checkpoint/checkpoint.h"

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

struct Latest {
  int64_t step = -1;  // none
  std::string path;
};

Result<Latest> latestIn(const std::string& folder,
                        int64_t before = std::numeric_limits<int64_t>::max()) {
  std::error_code code;
  Latest latest;
  fs::directory_iterator entries(folder, code);
  for (; !code && entries != fs::directory_iterator(); entries.increment(code)) {
    const std::optional<int64_t> step = stepOf(entries->path().filename().string());
    if (step && *step < before && *step > latest.step) latest = {*step, entries->path().string()};
  }
  if (code) return Error(unavailable(fmt::format("{}: cannot read: {}", folder, code.message())));
  return latest;
}

bool isIntact(const std::string& path, uint64_t modelFingerprint) {
  runtime::PosixFileSystem files;
  const auto file = files.open(path);
  if (!file.has_value()) return false;
  const auto header = runtime::readHeader(**file);
  return header.has_value() && runtime::checkFile(**file, *header, modelFingerprint).ok();
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

  TRIREME_ASSIGN_OR_RETURN(Latest latest, latestIn(fileOrFolder));
  if (latest.step < 0)
    return Error(invalidArgument(
        fmt::format("{}: no checkpoint ({}*{}) in this folder", fileOrFolder, kPrefix, kSuffix)));
  return std::move(latest.path);
}

Result<bool> isWithoutCheckpoint(const std::string& folder) {
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (!fs::exists(status)) return true;
  if (!fs::is_directory(status)) return false;
  TRIREME_ASSIGN_OR_RETURN(const Latest latest, latestIn(folder));
  return latest.step < 0;
}

Status withNextStep(Status reason, const std::string& checkpoint, uint64_t modelFingerprint) {
  const auto withHint = [&](const std::string& hint) {
    return Status(reason.code(), fmt::format("{}; {}", reason.message(), hint));
  };
  if (reason.code() != StatusCode::kInvalidArgument) return reason;
  if (isIntact(checkpoint, modelFingerprint))
    return withHint(
        "compile a bundle with the checkpoint's settings, or begin anew without --resume");
  const fs::path path(checkpoint);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const auto newestIntact = [&](int64_t before) -> std::string {
    for (;;) {
      const Result<Latest> latest = latestIn(folder.string(), before);
      if (!latest.has_value() || latest->step < 0) return "";
      if (isIntact(latest->path, modelFingerprint)) return latest->path;
      before = latest->step;
    }
  };
  if (const std::optional<int64_t> step = stepOf(path.filename().string()))
    if (const std::string earlier = newestIntact(*step); !earlier.empty())
      return withHint(fmt::format("the last intact one before it is --resume {}", earlier));
  if (const std::string other = newestIntact(std::numeric_limits<int64_t>::max()); !other.empty())
    return withHint(fmt::format("the newest intact one beside it is --resume {}", other));
  return withHint(
      "no intact checkpoint of this model is beside it; give another, or begin anew "
      "without --resume");
}

Status checkSaveFolder(const std::string& folder, int64_t numStepsDone) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) return {};
  TRIREME_ASSIGN_OR_RETURN(const Latest latest, latestIn(folder));
  if (latest.step <= numStepsDone) return {};
  return invalidArgument(fmt::format(
      "--save {}: has a checkpoint of step {}, and this run begins after step {}: go on with "
      "--resume {}, give another folder, or move what is newer away if it is damaged",
      folder, latest.step, numStepsDone, folder));
}

void removeUnfinished(const std::string& folder) {
  std::error_code code;
  std::vector<fs::path> unfinished;
  fs::directory_iterator entries(folder, code);
  for (; !code && entries != fs::directory_iterator(); entries.increment(code)) {
    const std::string name = entries->path().filename().string();
    const size_t end = name.find(kSuffix);
    if (end != std::string::npos && stepOf(name.substr(0, end + kSuffix.size())) &&
        name.ends_with(runtime::kUnfinished))
      unfinished.push_back(entries->path());
  }
  for (const fs::path& path : unfinished) fs::remove(path, code);
}

}  // namespace trireme::cli
