// Piper's input (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021), JSON.
#include <fmt/format.h>

#include <charconv>

#include "ir/spec/profile_builder.h"

namespace trireme::spec {
namespace {

// Sizes and times are bare numbers, in bytes and seconds.
template <typename T>
void readBare(MapReader& map, std::string_view key, T* out) {
  double value = 0;
  map.required(key, &value);
  if (const Node* node = map.child(key)) map.check(*node, checkMeasured(value));
  *out = T(value);
}

// Ids are whole numbers; a layer is known by their text.
void readId(MapReader& map, std::string_view key, std::string* out) {
  int64_t id = 0;
  map.required(key, &id);
  *out = fmt::format("{}", id);
}

const Node* requiredOfKind(MapReader& map, std::string_view key, Node::Kind kind) {
  const Node* node = map.requiredChild(key);
  if (!node || node->kind == kind) return node;
  map.fail(*node, fmt::format("expected {}, got {}", kind == Node::Kind::kMap ? "a map" : "a list",
                              describe(*node)));
  return nullptr;
}

Status readVariant(ProfileBuilder& builder, const std::string& file, const Node& node,
                   std::pair<int64_t, std::string> degreeAndPath) {
  MapReader map(file, node, degreeAndPath.second);
  ProfileVariant variant;
  variant.tensorDegree = degreeAndPath.first;
  map.required("id", &variant.name);
  readBare(map, "timePerSample", &variant.forward);
  readBare(map, "parameterSize", &variant.weights);
  readBare(map, "memoryUsageA", &variant.stored.emplace());
  readBare(map, "memoryUsageB", &variant.resident.emplace());
  requiredOfKind(map, "syncTimeFw", Node::Kind::kMap);
  requiredOfKind(map, "syncTimeBw", Node::Kind::kMap);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return builder.addVariant(node.mark, std::move(variant));
}

Status readLayer(ProfileBuilder& builder, const std::string& file, const Node& node, size_t index) {
  const std::string path = fmt::format("nodes[{}].", index);
  MapReader map(file, node, path);
  ProfileLayer layer;
  readId(map, "id", &layer.id);
  map.optional("name", &layer.name);
  const Node* degrees = requiredOfKind(map, "TMPCs", Node::Kind::kMap);
  TRIREME_RETURN_IF_ERROR(map.finish());
  TRIREME_RETURN_IF_ERROR(builder.addLayer(node.mark, std::move(layer)));
  for (const Node& list : degrees->items) {
    int64_t degree = 0;
    const char* end = list.key.data() + list.key.size();
    const auto [stop, code] = std::from_chars(list.key.data(), end, degree);
    if (code != std::errc() || stop != end)
      return errorAt(file, list.keyMark,
                     fmt::format("{}TMPCs: expected a tensor degree as the key, got {}", path,
                                 quoteForMessage(list.key)));
    if (list.kind != Node::Kind::kList)
      return errorAt(file, list.mark,
                     fmt::format("{}TMPCs.{}: expected a list of variants, got {}", path, list.key,
                                 describe(list)));
    for (size_t i = 0; i < list.items.size(); ++i)
      TRIREME_RETURN_IF_ERROR(
          readVariant(builder, file, list.items[i],
                      {degree, fmt::format("{}TMPCs.{}[{}].", path, list.key, i)}));
  }
  return {};
}

Status readEdge(ProfileBuilder& builder, const std::string& file, const Node& node, size_t index) {
  MapReader map(file, node, fmt::format("edges[{}].", index));
  std::string from, to;
  Bytes transfer;
  readId(map, "sourceId", &from);
  readId(map, "destId", &to);
  readBare(map, "communicationCost", &transfer);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return builder.addEdge(node.mark, from, to, transfer);
}

// Bytes for every neighbour and for nothing else.
Status readSync(ProfileBuilder& builder, const std::string& file, const Node& variant,
                std::pair<int32_t, size_t> place, bool isInput) {
  const std::string key = isInput ? "syncTimeFw" : "syncTimeBw";
  const Node& node = *variant.find(key);
  MapReader map(file, node, key + ".");
  for (const ProfileEdge& edge : builder.profile.edges) {
    if ((isInput ? edge.to : edge.from) != place.first) continue;
    const int32_t other = isInput ? edge.from : edge.to;
    map.requiredChild(builder.profile.layers[static_cast<size_t>(other)].id);
  }
  for (const Node& item : node.items) {
    Bytes bytes;
    readBare(map, item.key, &bytes);
    TRIREME_RETURN_IF_ERROR(
        builder.addSync(item.keyMark, place.first, place.second, isInput, item.key, bytes));
  }
  return map.finish();
}

Status readSyncs(ProfileBuilder& builder, const std::string& file, const Node& nodes) {
  for (size_t i = 0; i < nodes.items.size(); ++i) {
    size_t variant = 0;
    for (const Node& list : nodes.items[i].find("TMPCs")->items)
      for (const Node& item : list.items) {
        for (const bool isInput : {true, false})
          TRIREME_RETURN_IF_ERROR(
              readSync(builder, file, item, {static_cast<int32_t>(i), variant}, isInput));
        ++variant;
      }
  }
  return {};
}

}  // namespace

Result<ProfileSpec> importPiperProfile(const Node& root, const std::string& name) {
  MapReader map(name, root);
  ProfileBuilder builder(name);
  ProfileSpec& profile = builder.profile;
  profile.source = "an input file of Piper";
  map.required("maxDevices", &profile.devices.emplace());
  map.required("mbsInBatch", &profile.microbatches.emplace());
  double memory = 0, bandwidth = 0;
  map.required("maxMemoryPerDevice", &memory);
  map.required("bandwidth", &bandwidth);
  profile.memory = Bytes(memory);
  profile.bandwidth = BytesPerSecond(bandwidth);
  const Node* nodes = requiredOfKind(map, "nodes", Node::Kind::kList);
  const Node* edges = requiredOfKind(map, "edges", Node::Kind::kList);
  TRIREME_RETURN_IF_ERROR(map.finish());
  if (std::optional<Problem> problem = findProblem(profile)) {
    const std::pair<std::string_view, std::string_view> keys[] = {{"devices", "maxDevices"},
                                                                  {"microbatches", "mbsInBatch"},
                                                                  {"memory", "maxMemoryPerDevice"}};
    for (const auto& [ours, theirs] : keys)
      if (problem->key == ours) problem->key = theirs;
    return Error(map.errorFor(*problem));
  }
  for (size_t i = 0; i < nodes->items.size(); ++i)
    TRIREME_RETURN_IF_ERROR(readLayer(builder, name, nodes->items[i], i));
  for (size_t i = 0; i < edges->items.size(); ++i)
    TRIREME_RETURN_IF_ERROR(readEdge(builder, name, edges->items[i], i));
  TRIREME_RETURN_IF_ERROR(readSyncs(builder, name, *nodes));
  return builder.finish();
}

}  // namespace trireme::spec
