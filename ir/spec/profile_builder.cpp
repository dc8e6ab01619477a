#include "ir/spec/profile_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/spec/map_reader.h"

namespace trireme::spec {
namespace {

constexpr int64_t kMaxTensorDegree = int64_t{1} << 24;
constexpr double kMaxMeasured = 1e18;
constexpr int64_t kMostCounted = int64_t{1} << 30;

uint64_t keyOf(int32_t from, int32_t to) {
  return static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to);
}

bool isPrintable(const std::string& text) {
  return isValidUtf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
         });
}

// "a -> b -> c -> a", its middle left out if it is long.
std::string cycleText(const ProfileSpec& profile, const std::vector<int32_t>& cycle) {
  constexpr size_t kMostShown = 8;
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (cycle.size() > kMostShown && i == kMostShown / 2) text += "... -> ";
    if (cycle.size() <= kMostShown || i < kMostShown / 2 || i + kMostShown / 2 > cycle.size())
      text += quoteForMessage(profile.layers[static_cast<size_t>(cycle[i])].id) + " -> ";
  }
  return text + quoteForMessage(profile.layers[static_cast<size_t>(cycle[0])].id);
}

}  // namespace

Status checkMeasured(double value) {
  if (value < 0) return invalidArgument(fmt::format("(F5) must not be negative, got {}", value));
  if (!(value <= kMaxMeasured))
    return invalidArgument(fmt::format("(F5) must be at most {}, got {}", kMaxMeasured, value));
  return {};
}

std::optional<Problem> findProblem(const ProfileSpec& profile) {
  const auto counts = [](const std::optional<int64_t>& n) {
    return !n || (*n >= 1 && *n <= kMostCounted);
  };
  const auto message = [](int64_t n) {
    return fmt::format("(F5) must be 1 to {}, got {}", kMostCounted, n);
  };
  if (!counts(profile.devices)) return Problem{"devices", message(*profile.devices)};
  if (!counts(profile.microbatches)) return Problem{"microbatches", message(*profile.microbatches)};
  if (profile.memory && !(profile.memory->count() > 0))
    return Problem{"memory", "(F5) must be above 0"};
  if (profile.bandwidth && !(profile.bandwidth->count() > 0))
    return Problem{"bandwidth", "(F5) must be above 0"};
  return std::nullopt;
}

Status ProfileBuilder::addLayer(Mark mark, ProfileLayer layer) {
  if (layer.id.empty()) return error(mark, "(F1) the id of a layer is empty");
  if (!isPrintable(layer.id) || !isPrintable(layer.name))
    return error(mark, "(F1) ids and names are valid UTF-8 without control characters");
  const auto [at, isNew] = indexOf_.emplace(layer.id, static_cast<int32_t>(profile.layers.size()));
  if (!isNew)
    return error(mark, fmt::format("(F1) layer {} is there twice, first in line {}; ids must be "
                                   "distinct",
                                   quoteForMessage(layer.id),
                                   layerMarks_[static_cast<size_t>(at->second)].line));
  if (profile.layers.size() == kMaxProfileLayers)
    return error(mark, fmt::format("(F1) a profile has up to {} layers", kMaxProfileLayers));
  profile.layers.push_back(std::move(layer));
  layerMarks_.push_back(mark);
  return {};
}

Status ProfileBuilder::addVariant(Mark mark, ProfileVariant variant) {
  ProfileLayer& layer = profile.layers.back();
  if (variant.tensorDegree < 1 || variant.tensorDegree > kMaxTensorDegree)
    return error(mark, fmt::format("(F6) a tensor degree is 1 to {}, got {}", kMaxTensorDegree,
                                   variant.tensorDegree));
  if (!isPrintable(variant.name))
    return error(mark, "(F1) ids and names are valid UTF-8 without control characters");
  for (const ProfileVariant& other : layer.variants)
    if (other.tensorDegree == variant.tensorDegree && other.name == variant.name)
      return error(mark, fmt::format("(F6) layer {} has two variants {} at tensor degree {}",
                                     quoteForMessage(layer.id), quoteForMessage(variant.name),
                                     variant.tensorDegree));
  layer.variants.push_back(std::move(variant));
  return {};
}

Result<int32_t> ProfileBuilder::layer(Mark mark, const std::string& id) const {
  if (const auto found = indexOf_.find(id); found != indexOf_.end()) return found->second;
  std::vector<std::string> ids;
  for (const ProfileLayer& layer : profile.layers) ids.push_back(layer.id);
  constexpr size_t kMostListed = 12;  // Of a long profile the nearest id, or none.
  std::string nearest = suggestion(id, ids);
  if (nearest.starts_with("; valid") && ids.size() > kMostListed) nearest.clear();
  return Error(
      error(mark, fmt::format("(F2) there is no layer {}{}", quoteForMessage(id), nearest)));
}

int32_t ProfileBuilder::edgeBetween(int32_t from, int32_t to) const {
  const auto found = edgeOf_.find(keyOf(from, to));
  return found == edgeOf_.end() ? -1 : found->second;
}

Status ProfileBuilder::addEdge(Mark mark, const std::string& fromId, const std::string& toId,
                               std::optional<Bytes> transfer) {
  TRIREME_ASSIGN_OR_RETURN(const int32_t from, layer(mark, fromId));
  TRIREME_ASSIGN_OR_RETURN(const int32_t to, layer(mark, toId));
  if (from == to)
    return error(mark, fmt::format("(F3) layer {} reads its own output; an edge joins two layers",
                                   quoteForMessage(fromId)));
  const auto [at, isNew] =
      edgeOf_.emplace(keyOf(from, to), static_cast<int32_t>(profile.edges.size()));
  if (!isNew)
    return error(mark, fmt::format("(F2) the edge from {} to {} is there twice, first in line {}",
                                   quoteForMessage(fromId), quoteForMessage(toId),
                                   edgeMarks_[static_cast<size_t>(at->second)].line));
  if (!transfer) transfer = profile.layers[static_cast<size_t>(from)].activation;
  if (!transfer)
    return error(mark, fmt::format("the edge carries the activation of layer {}, which is missing; "
                                   "expected one there, or a transfer here",
                                   quoteForMessage(fromId)));
  profile.edges.push_back({from, to, *transfer});
  edgeMarks_.push_back(mark);
  return {};
}

std::vector<std::string> ProfileBuilder::neighbours(int32_t layer, bool inputs) const {
  std::vector<std::string> ids;
  for (const ProfileEdge& edge : profile.edges)
    if ((inputs ? edge.to : edge.from) == layer)
      ids.push_back(profile.layers[static_cast<size_t>(inputs ? edge.from : edge.to)].id);
  return ids;
}

Status ProfileBuilder::addSync(Mark mark, int32_t layerIndex, size_t variant, bool isInput,
                               const std::string& neighbour, Bytes bytes) {
  const auto found = indexOf_.find(neighbour);
  const int32_t other = found == indexOf_.end() ? -1 : found->second;
  const int32_t edge = other < 0 ? -1
                       : isInput ? edgeBetween(other, layerIndex)
                                 : edgeBetween(layerIndex, other);
  ProfileLayer& layer = profile.layers[static_cast<size_t>(layerIndex)];
  if (edge < 0) {
    const std::vector<std::string> valid = neighbours(layerIndex, isInput);
    return error(mark, fmt::format("(F7) layer {} has no {} {}{}", quoteForMessage(layer.id),
                                   isInput ? "input from" : "output to", quoteForMessage(neighbour),
                                   valid.empty() ? fmt::format("; it has no {}s at all",
                                                               isInput ? "input" : "output")
                                                 : suggestion(neighbour, valid)));
  }
  if (!(bytes.count() > 0)) return {};
  std::vector<EdgeBytes>& sync = layer.variants[variant].sync;
  const auto place = std::lower_bound(sync.begin(), sync.end(), edge,
                                      [](const EdgeBytes& e, int32_t i) { return e.edge < i; });
  sync.insert(place, {edge, bytes});
  return {};
}

// Takes away layers whose inputs are all taken away. What stays has a layer of its own before it,
// so walking back from there runs into a cycle.
Status ProfileBuilder::checkAcyclic() const {
  const size_t n = profile.layers.size();
  std::vector<int32_t> numInputs(n, 0);
  std::vector<std::vector<int32_t>> outputs(n);
  for (const ProfileEdge& edge : profile.edges) {
    ++numInputs[static_cast<size_t>(edge.to)];
    outputs[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
  std::vector<int32_t> ready;
  for (size_t i = 0; i < n; ++i)
    if (numInputs[i] == 0) ready.push_back(static_cast<int32_t>(i));
  for (size_t next = 0; next < ready.size(); ++next)
    for (const int32_t to : outputs[static_cast<size_t>(ready[next])])
      if (--numInputs[static_cast<size_t>(to)] == 0) ready.push_back(to);
  if (ready.size() == n) return {};

  std::vector<int32_t> inputOf(n, -1);  // One edge back, between layers that stay.
  for (const ProfileEdge& edge : profile.edges)
    if (numInputs[static_cast<size_t>(edge.from)] > 0)
      inputOf[static_cast<size_t>(edge.to)] = edge.from;
  const auto stays =
      std::find_if(numInputs.begin(), numInputs.end(), [](int32_t k) { return k > 0; });
  auto at = static_cast<int32_t>(stays - numInputs.begin());
  for (size_t i = 0; i < n; ++i) at = inputOf[static_cast<size_t>(at)];
  std::vector<int32_t> cycle = {at};
  for (int32_t i = inputOf[static_cast<size_t>(at)]; i != at; i = inputOf[static_cast<size_t>(i)])
    cycle.push_back(i);
  std::reverse(cycle.begin() + 1, cycle.end());
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  const int32_t edge = edgeBetween(cycle.back(), cycle.front());
  return error(edgeMarks_[static_cast<size_t>(edge)],
               fmt::format("(F3) the graph has a cycle: {}; a layer must not depend on itself",
                           cycleText(profile, cycle)));
}

Status ProfileBuilder::checkConnected() const {
  std::vector<int32_t> group(profile.layers.size());
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](int32_t i) {
    while (group[static_cast<size_t>(i)] != i) {
      int32_t& up = group[static_cast<size_t>(i)];
      up = group[static_cast<size_t>(up)];
      i = up;
    }
    return i;
  };
  for (const ProfileEdge& edge : profile.edges) {
    const int32_t a = root(edge.from), b = root(edge.to);
    group[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }
  for (size_t i = 0; i < profile.layers.size(); ++i)
    if (root(static_cast<int32_t>(i)) != 0)
      return error(layerMarks_[i],
                   fmt::format("(F4) no edges lead from layer {} to layer {}; a profile is one "
                               "connected graph",
                               quoteForMessage(profile.layers[0].id),
                               quoteForMessage(profile.layers[i].id)));
  return {};
}

Result<ProfileSpec> ProfileBuilder::finish() {
  if (profile.layers.empty()) return Error(error({}, "(F1) the profile has no layers"));
  for (size_t i = 0; i < profile.layers.size(); ++i)
    if (profile.layers[i].variants.empty())
      return Error(error(layerMarks_[i], fmt::format("(F6) layer {} has no variants",
                                                     quoteForMessage(profile.layers[i].id))));
  TRIREME_RETURN_IF_ERROR(checkAcyclic());
  TRIREME_RETURN_IF_ERROR(checkConnected());
  return std::move(profile);
}

}  // namespace trireme::spec
