#include <fmt/format.h>

#include "ir/spec/document.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/print.h"
#include "ir/spec/profile.h"
#include "ir/spec/profile_builder.h"

namespace trireme::spec {
namespace {

template <typename T>
void requiredMeasured(MapReader& map, std::string_view key, T* out) {
  map.required(key, out);
  if (const Node* node = map.child(key)) map.check(*node, checkMeasured(out->count()));
}

template <typename T>
void optionalMeasured(MapReader& map, std::string_view key, std::optional<T>* out) {
  if (!map.child(key)) return;
  requiredMeasured(map, key, &out->emplace());
}

template <typename T>
void optionalValue(MapReader& map, std::string_view key, std::optional<T>* out) {
  if (map.child(key)) map.required(key, &out->emplace());
}

// The list under `key`, which must be there.
const std::vector<Node>* listOf(MapReader& map, std::string_view key) {
  const Node* node = map.requiredChild(key);
  if (!node) return nullptr;
  if (node->kind == Node::Kind::kList) return &node->items;
  map.fail(*node, fmt::format("expected a list, got {}", describe(*node)));
  return nullptr;
}

// What a layer and a variant have in common: a layer with one way to run it needs no list.
void readCosts(MapReader& map, ProfileVariant* variant) {
  requiredMeasured(map, "forward", &variant->forward);
  requiredMeasured(map, "backward", &variant->backward);
  requiredMeasured(map, "weights", &variant->weights);
  optionalMeasured(map, "stored", &variant->stored);
  optionalMeasured(map, "resident", &variant->resident);
}

Status readVariant(ProfileBuilder& builder, MapReader& map, const Node& node) {
  ProfileVariant variant;
  map.required("name", &variant.name);
  map.required("tensor", &variant.tensorDegree);
  readCosts(map, &variant);
  for (const char* key : {"sync_in", "sync_out"})  // Read by readSync() when the edges are known.
    map.child(key);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return builder.addVariant(node.mark, std::move(variant));
}

Status readLayer(ProfileBuilder& builder, const std::string& file, const Node& node, size_t index) {
  MapReader map(file, node, fmt::format("layers[{}].", index));
  ProfileLayer layer;
  map.required("id", &layer.id);
  map.optional("name", &layer.name);
  optionalMeasured(map, "activation", &layer.activation);
  ProfileVariant only;
  const Node* variants = map.child("variants");
  if (variants) {
    if (variants->kind != Node::Kind::kList)
      map.fail(*variants, fmt::format("expected a list, got {}", describe(*variants)));
  } else {
    readCosts(map, &only);
  }
  TRIREME_RETURN_IF_ERROR(map.finish());
  TRIREME_RETURN_IF_ERROR(builder.addLayer(node.mark, std::move(layer)));
  if (!variants) return builder.addVariant(node.mark, std::move(only));
  for (size_t i = 0; i < variants->items.size(); ++i) {
    const Node& item = variants->items[i];
    MapReader inner(file, item, fmt::format("layers[{}].variants[{}].", index, i));
    TRIREME_RETURN_IF_ERROR(readVariant(builder, inner, item));
  }
  return {};
}

Status readEdge(ProfileBuilder& builder, const std::string& file, const Node& node, size_t index) {
  MapReader map(file, node, fmt::format("edges[{}].", index));
  std::string from, to;
  std::optional<Bytes> transfer;
  map.required("from", &from);
  map.required("to", &to);
  optionalMeasured(map, "transfer", &transfer);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return builder.addEdge(node.mark, from, to, transfer);
}

// `edges: chain`, or a list.
Status readEdges(ProfileBuilder& builder, const std::string& file, const Node& node) {
  const std::vector<ProfileLayer>& layers = builder.profile.layers;
  if (node.kind == Node::Kind::kScalar && node.text == "chain") {
    for (size_t i = 0; i + 1 < layers.size(); ++i)
      TRIREME_RETURN_IF_ERROR(
          builder.addEdge(node.mark, layers[i].id, layers[i + 1].id, std::nullopt));
    return {};
  }
  if (node.kind != Node::Kind::kList)
    return errorAt(file, node.mark,
                   fmt::format("edges: expected a list of {{from: id, to: id}}, or 'chain' for "
                               "layers that follow each other; got {}",
                               describe(node)));
  for (size_t i = 0; i < node.items.size(); ++i)
    TRIREME_RETURN_IF_ERROR(readEdge(builder, file, node.items[i], i));
  return {};
}

Status readSync(ProfileBuilder& builder, const std::string& file, const Node& variant,
                std::pair<size_t, size_t> place) {
  for (const bool isInput : {true, false}) {
    const Node* node = variant.find(isInput ? "sync_in" : "sync_out");
    if (!node) continue;
    MapReader map(file, *node,
                  fmt::format("layers[{}].variants[{}].{}.", place.first, place.second,
                              isInput ? "sync_in" : "sync_out"));
    for (const Node& item : node->items) {
      Bytes bytes;
      requiredMeasured(map, item.key, &bytes);
      TRIREME_RETURN_IF_ERROR(map.firstValueError());
      TRIREME_RETURN_IF_ERROR(builder.addSync(item.keyMark, static_cast<int32_t>(place.first),
                                              place.second, isInput, item.key, bytes));
    }
    TRIREME_RETURN_IF_ERROR(map.finish());
  }
  return {};
}

Result<ProfileSpec> readProfile(const Node& root, const std::string& name) {
  MapReader map(name, root);
  ProfileBuilder builder(name);
  ProfileSpec& profile = builder.profile;
  map.optional("name", &profile.name);
  map.required("source", &profile.source);
  optionalValue(map, "devices", &profile.devices);
  optionalValue(map, "microbatches", &profile.microbatches);
  optionalValue(map, "memory", &profile.memory);
  optionalValue(map, "bandwidth", &profile.bandwidth);
  const std::vector<Node>* layers = listOf(map, "layers");
  const Node* edges = map.requiredChild("edges");
  TRIREME_RETURN_IF_ERROR(map.finish());
  if (const std::optional<Problem> problem = findProblem(profile))
    return Error(map.errorFor(*problem));
  for (size_t i = 0; i < layers->size(); ++i)
    TRIREME_RETURN_IF_ERROR(readLayer(builder, name, (*layers)[i], i));
  TRIREME_RETURN_IF_ERROR(readEdges(builder, name, *edges));
  for (size_t i = 0; i < layers->size(); ++i)
    if (const Node* variants = (*layers)[i].find("variants"))
      for (size_t v = 0; v < variants->items.size(); ++v)
        TRIREME_RETURN_IF_ERROR(readSync(builder, name, variants->items[v], {i, v}));
  return builder.finish();
}

std::string costsText(const ProfileVariant& v) {
  std::string text = fmt::format("forward: {} s, backward: {} s, weights: {} B", v.forward.count(),
                                 v.backward.count(), v.weights.count());
  if (v.stored) text += fmt::format(", stored: {} B", v.stored->count());
  if (v.resident) text += fmt::format(", resident: {} B", v.resident->count());
  return text;
}

std::string syncText(const ProfileSpec& profile, int32_t layer, const ProfileVariant& v,
                     bool isInput) {
  std::string text;
  for (const EdgeBytes& sync : v.sync) {
    const ProfileEdge& edge = profile.edges[static_cast<size_t>(sync.edge)];
    if ((edge.to == layer) != isInput) continue;
    const int32_t other = isInput ? edge.from : edge.to;
    text +=
        fmt::format("{}{}: {} B", text.empty() ? "" : ", ",
                    printText(profile.layers[static_cast<size_t>(other)].id), sync.bytes.count());
  }
  if (text.empty()) return "";
  return fmt::format(", {}: {{{}}}", isInput ? "sync_in" : "sync_out", text);
}

}  // namespace

Result<ProfileSpec> parseProfile(const std::string& text, const std::string& name) {
  if (name.ends_with(".txt")) return parsePipedreamProfile(text, name);
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  if (name.ends_with(".json") && root.find("nodes")) return importPiperProfile(root, name);
  return readProfile(root, name);
}

Result<ProfileSpec> loadProfile(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, readFile(path));
  return parseProfile(text, path);
}

std::string printProfile(const ProfileSpec& profile) {
  std::string text;
  if (!profile.name.empty()) text += fmt::format("name: {}\n", printText(profile.name));
  text += fmt::format("source: {}\n", printText(profile.source));
  if (profile.devices) text += fmt::format("devices: {}\n", *profile.devices);
  if (profile.microbatches) text += fmt::format("microbatches: {}\n", *profile.microbatches);
  if (profile.memory) text += fmt::format("memory: {} B\n", profile.memory->count());
  if (profile.bandwidth) text += fmt::format("bandwidth: {} B/s\n", profile.bandwidth->count());
  text += "layers:\n";
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const ProfileLayer& layer = profile.layers[i];
    text += fmt::format("  - id: {}\n", printText(layer.id));
    if (!layer.name.empty()) text += fmt::format("    name: {}\n", printText(layer.name));
    if (layer.activation) text += fmt::format("    activation: {} B\n", layer.activation->count());
    text += "    variants:\n";
    for (const ProfileVariant& v : layer.variants)
      text += fmt::format("      - {{name: {}, tensor: {}, {}{}{}}}\n", printText(v.name),
                          v.tensorDegree, costsText(v),
                          syncText(profile, static_cast<int32_t>(i), v, true),
                          syncText(profile, static_cast<int32_t>(i), v, false));
  }
  text += profile.edges.empty() ? "edges: []\n" : "edges:\n";
  for (const ProfileEdge& edge : profile.edges)
    text += fmt::format("  - {{from: {}, to: {}, transfer: {} B}}\n",
                        printText(profile.layers[static_cast<size_t>(edge.from)].id),
                        printText(profile.layers[static_cast<size_t>(edge.to)].id),
                        edge.transfer.count());
  return text;
}

}  // namespace trireme::spec
