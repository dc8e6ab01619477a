#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/spec/document.h"
#include "ir/spec/hugging_face.h"
#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/shipped.h"
#include "ir/spec/suggestion.h"

namespace trireme::spec {

Result<std::string> readFile(const std::string& path, size_t limit) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    return Error(unavailable(fmt::format("{}: cannot read: it is a folder", path)));
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return Error(unavailable(
        fmt::format("{}: cannot read: {}", path, errno ? std::strerror(errno) : "unknown reason")));
  // One byte over the limit is enough for the parser to refuse the file.
  std::string text(limit + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return Error(unavailable(fmt::format("{}: cannot read", path)));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

namespace {

struct NamedText {
  std::string name;  // in messages
  std::string text;
};

bool looksLikeAName(const std::string& text) {
  return text.find('/') == std::string::npos && !text.ends_with(".yaml") &&
         !text.ends_with(".yml") && !text.ends_with(".json");
}

// "; clusters with that device: a, b", of "h100" say; empty: none.
std::string clustersWith(const std::string& device) {
  std::vector<std::string> found;
  for (const std::string& name : shippedNames(ShippedKind::kCluster)) {
    const ShippedFile& file = *findShipped(ShippedKind::kCluster, name);
    const Result<ClusterSpec> cluster = parseCluster(std::string(file.text), shippedPath(file));
    if (cluster.has_value() &&
        (lowerCase(cluster->device.name) + "-").starts_with(lowerCase(device) + "-"))
      found.push_back(name);
  }
  return found.empty() ? ""
                       : fmt::format("; clusters with that device: {}", fmt::join(found, ", "));
}

Result<NamedText> textOf(ShippedKind kind, const std::string& nameOrPath) {
  if (const ShippedFile* file = findShipped(kind, nameOrPath))
    return NamedText{shippedPath(*file), std::string(file->text)};
  Result<std::string> text = readFile(nameOrPath);
  if (text.has_value()) return NamedText{nameOrPath, *std::move(text)};
  if (!looksLikeAName(nameOrPath)) return Error(std::move(text).error());
  std::string known = kind == ShippedKind::kCluster ? clustersWith(nameOrPath) : "";
  if (known.empty()) known = suggestion(nameOrPath, shippedNames(kind));
  return Error(unavailable(fmt::format("{}: there is no such file and no {} of this name{}",
                                       nameOrPath, shippedKindName(kind), known)));
}

template <typename T>
Result<T> loadWith(Result<T> (*parse)(const std::string&, const std::string&), ShippedKind kind,
                   const std::string& nameOrPath) {
  TRIREME_ASSIGN_OR_RETURN(const NamedText file, textOf(kind, nameOrPath));
  return parse(file.text, file.name);
}

}  // namespace

Result<ModelSpec> loadModel(const std::string& path) {
  return loadWith(parseModel, ShippedKind::kModel, path);
}
Result<std::vector<ForeignDropout>> loadForeignDropout(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const NamedText file, textOf(ShippedKind::kModel, path));
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(file.text, file.name));
  return importDropout(root, file.name);
}
Result<TrainingSpec> loadTraining(const std::string& path, Precision usual) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, readFile(path));
  return parseTraining(text, path, usual);
}
Result<ClusterSpec> loadCluster(const std::string& path) {
  return loadWith(parseCluster, ShippedKind::kCluster, path);
}
Result<StackProfile> loadStack(const std::string& path) {
  return loadWith(parseStack, ShippedKind::kStack, path);
}

}  // namespace trireme::spec
