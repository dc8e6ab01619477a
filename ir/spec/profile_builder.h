// The rules (F1)-(F7) of profiles, checked while a reader hands over what it finds. Internal to
// ir/spec.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/profile.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// Layers first, then edges, then sync bytes. Errors: kInvalidArgument with the place.
class ProfileBuilder {
 public:
  explicit ProfileBuilder(const std::string& file) : file_(file) {}

  Status addLayer(Mark mark, ProfileLayer layer);
  Status addVariant(Mark mark, ProfileVariant variant);  // of the last layer
  // The index of a layer that must be there.
  Result<int32_t> layer(Mark mark, const std::string& id) const;
  // Without `transfer` the edge carries the source's activation, which must be known then.
  Status addEdge(Mark mark, const std::string& from, const std::string& to,
                 std::optional<Bytes> transfer);
  // Bytes that variant `variant` of `layer` exchanges for its input from (isInput) or its output to
  // the layer with id `neighbour`.
  Status addSync(Mark mark, int32_t layer, size_t variant, bool isInput,
                 const std::string& neighbour, Bytes bytes);
  // Checks the graph as a whole.
  Result<ProfileSpec> finish();

  ProfileSpec profile;

 private:
  Status error(Mark mark, std::string_view message) const { return errorAt(file_, mark, message); }
  // The edge between two layers, -1 if there is none.
  int32_t edgeBetween(int32_t from, int32_t to) const;
  std::vector<std::string> neighbours(int32_t layer, bool inputs) const;
  Status checkAcyclic() const;
  Status checkConnected() const;

  const std::string& file_;
  std::unordered_map<std::string, int32_t> indexOf_;
  std::unordered_map<uint64_t, int32_t> edgeOf_;  // from << 32 | to
  std::vector<Mark> layerMarks_, edgeMarks_;
};

// (F5) of a size in bytes or a time in seconds. No place: the reader adds it.
Status checkMeasured(double value);
// (F5) of counts, of memory and of bandwidth, for the keys that are there.
std::optional<Problem> findProblem(const ProfileSpec& profile);

// The published forms (profile.h). `root` is the document of the file.
Result<ProfileSpec> parsePipedreamProfile(const std::string& text, const std::string& name);
Result<ProfileSpec> importPiperProfile(const Node& root, const std::string& name);

}  // namespace trireme::spec
