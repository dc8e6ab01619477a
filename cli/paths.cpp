#include "cli/paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ir/program/bundle.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Absolute and without links, as far as the path exists, and without a slash at the end.
fs::path resolved(const std::string& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code);
  const fs::path result = fs::weakly_canonical(absolute, code);
  const fs::path chosen = code ? absolute.lexically_normal() : result;
  return chosen.has_filename() ? chosen : chosen.parent_path();
}

bool isFileOrFolder(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  return !fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status);
}

bool areSame(const NamedPath& a, const NamedPath& b) {
  std::error_code code;
  // Two names of one file are found by fs::equivalent(), which needs the file to be there.
  return fs::equivalent(a.path, b.path, code) || resolved(a.path) == resolved(b.path);
}

bool isWithin(const NamedPath& inner, const NamedPath& folder) {
  const fs::path outer = resolved(folder.path);
  for (fs::path at = resolved(inner.path); at.has_relative_path();) {
    at = at.parent_path();
    if (at == outer) return true;
  }
  return false;
}

Status isInside(const NamedPath& output, const std::string& bundle) {
  return invalidArgument(fmt::format("{} {}: is inside of the bundle {}; give another place",
                                     output.flag, output.path, bundle));
}

Status refuse(const NamedPath& output, const NamedPath& other, bool isInput) {
  if (isWithin(output, other)) return isInside(output, other.path);
  return invalidArgument(fmt::format("{} {}: is also {}, and would {}; give another file",
                                     output.flag, output.path, other.flag,
                                     isInput ? "be overwritten" : "be written twice"));
}

Status checkPair(const NamedPath& output, const NamedPath& other, bool isInput) {
  if (output.path.empty() || other.path.empty() || !isFileOrFolder(output.path)) return {};
  if (areSame(output, other) || (other.isBundle && isWithin(output, other)))
    return refuse(output, other, isInput);
  return {};
}

// Bundles of other commands: those on the disk.
Status checkOutsideOfBundles(const NamedPath& output) {
  if (output.path.empty() || !isFileOrFolder(output.path)) return {};
  const fs::path path = resolved(output.path);
  if (!output.isBundle && program::isBundle(path.string()))
    return invalidArgument(
        fmt::format("{} {}: is a bundle; give another place", output.flag, output.path));
  for (fs::path at = path; at.has_relative_path();) {
    at = at.parent_path();
    if (program::isBundle(at.string())) return isInside(output, at.string());
  }
  return {};
}

Status cannotWrite(const std::string& path, int code) {
  return unavailable(fmt::format("{}: cannot write: {}", path, std::strerror(code)));
}

}  // namespace

Status checkOutputs(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedPath& input : inputs)
      TRIREME_RETURN_IF_ERROR(checkPair(outputs[i], input, true));
    for (size_t j = 0; j < outputs.size(); ++j)
      if (i != j) TRIREME_RETURN_IF_ERROR(checkPair(outputs[i], outputs[j], false));
    TRIREME_RETURN_IF_ERROR(checkOutsideOfBundles(outputs[i]));
  }
  return {};
}

Status checkWritable(const std::string& path) {
  if (path.empty()) return {};
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (fs::is_directory(status)) return cannotWrite(path, EISDIR);
  if (fs::exists(status) && access(path.c_str(), W_OK) != 0) return cannotWrite(path, errno);
  if (fs::exists(status) && !fs::is_regular_file(status)) return {};
  const fs::path folder = fs::path(path).parent_path();
  const std::string place = folder.empty() ? "." : folder.string();
  if (!fs::is_directory(place, code))
    return cannotWrite(path, fs::exists(place, code) ? ENOTDIR : ENOENT);
  if (access(place.c_str(), W_OK | X_OK) != 0) return cannotWrite(path, errno);
  return {};
}

Status checkWritableFolder(const std::string& folder) {
  if (folder.empty() || access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return cannotWrite(folder, errno);
}

Status createFolder(const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    return unavailable(fmt::format("{}: cannot create the folder: {}", folder, code.message()));
  return checkWritableFolder(folder);
}

}  // namespace trireme::cli
