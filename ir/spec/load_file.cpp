#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/spec/document.h"
#include "ir/spec/hugging_face.h"
#include "ir/spec/load.h"

namespace trireme::spec {

Result<std::string> readFile(const std::string& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    return Error(unavailable(fmt::format("{}: cannot read: it is a folder", path)));
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return Error(unavailable(
        fmt::format("{}: cannot read: {}", path, errno ? std::strerror(errno) : "unknown reason")));
  // One byte over the limit is enough for the parser to refuse the file.
  std::string text(kMaxDocumentBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return Error(unavailable(fmt::format("{}: cannot read", path)));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

namespace {

template <typename T>
Result<T> loadWith(Result<T> (*parse)(const std::string&, const std::string&),
                   const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, readFile(path));
  return parse(text, path);
}

}  // namespace

Result<ModelSpec> loadModel(const std::string& path) { return loadWith(parseModel, path); }
Result<std::vector<ForeignDropout>> loadForeignDropout(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, readFile(path));
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, path));
  return importDropout(root, path);
}
Result<TrainingSpec> loadTraining(const std::string& path) { return loadWith(parseTraining, path); }
Result<ClusterSpec> loadCluster(const std::string& path) { return loadWith(parseCluster, path); }
Result<StackProfile> loadStack(const std::string& path) { return loadWith(parseStack, path); }

}  // namespace trireme::spec
