#include "planner/partition/down_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace trireme::planner {
namespace {

using Words = std::vector<uint64_t>;

// Layers that can be added to a set without breaking it.
using Ready = std::vector<int32_t>;

struct Neighbours {
  std::vector<std::vector<int32_t>> inputs, outputs;
};

Neighbours neighboursOf(const spec::ProfileSpec& profile) {
  Neighbours result;
  result.inputs.resize(profile.layers.size());
  result.outputs.resize(profile.layers.size());
  for (const spec::ProfileEdge& edge : profile.edges) {
    result.inputs[static_cast<size_t>(edge.to)].push_back(edge.from);
    result.outputs[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
  return result;
}

// All layers, each after its inputs.
std::vector<int32_t> topologicalOrder(const Neighbours& graph) {
  std::vector<int32_t> order;
  std::vector<size_t> numInputs;
  for (const std::vector<int32_t>& inputs : graph.inputs) numInputs.push_back(inputs.size());
  for (size_t i = 0; i < numInputs.size(); ++i)
    if (numInputs[i] == 0) order.push_back(static_cast<int32_t>(i));
  for (size_t next = 0; next < order.size(); ++next)
    for (const int32_t to : graph.outputs[static_cast<size_t>(order[next])])
      if (--numInputs[static_cast<size_t>(to)] == 0) order.push_back(to);
  return order;
}

bool has(const Words& set, int32_t layer) {
  return (set[static_cast<size_t>(layer) / 64] >> (static_cast<size_t>(layer) % 64) & 1) != 0;
}

Ready readyAfter(const Ready& before, int32_t added, const Words& set, const Neighbours& graph) {
  Ready ready;
  for (const int32_t layer : before)
    if (layer != added) ready.push_back(layer);
  for (const int32_t layer : graph.outputs[static_cast<size_t>(added)]) {
    const std::vector<int32_t>& inputs = graph.inputs[static_cast<size_t>(layer)];
    if (std::all_of(inputs.begin(), inputs.end(), [&](int32_t i) { return has(set, i); }))
      ready.push_back(layer);
  }
  return ready;
}

}  // namespace

Result<DownSets> DownSets::of(const spec::ProfileSpec& profile, size_t limit) {
  const Neighbours graph = neighboursOf(profile);
  DownSets sets;
  sets.order_ = topologicalOrder(graph);
  sets.wordsPerSet_ = (profile.layers.size() + 63) / 64;
  std::map<Words, Ready> level;  // Sets of one size.
  Ready& sources = level[Words(sets.wordsPerSet_)];
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (graph.inputs[i].empty()) sources.push_back(static_cast<int32_t>(i));
  sets.isChain_ = true;
  for (int32_t size = 0; !level.empty(); ++size) {
    sets.isChain_ = sets.isChain_ && level.size() == 1;
    if (sets.size() + level.size() > limit)
      return Error(resourceExhausted(fmt::format(
          "the profile can be cut in two in more than {} ways, because {} into one", limit,
          sets.isChain_ ? "it is a chain of so many layers; merge some that follow "
                          "each other"
                        : "many of its branches run beside each other; merge the "
                          "layers of a branch")));
    std::map<Words, Ready> next;
    for (const auto& [set, ready] : level) {
      sets.words_.insert(sets.words_.end(), set.begin(), set.end());
      sets.sizes_.push_back(size);
      for (const int32_t layer : ready) {
        Words larger = set;
        larger[static_cast<size_t>(layer) / 64] |= uint64_t{1} << (static_cast<size_t>(layer) % 64);
        if (!next.contains(larger)) {
          Ready after = readyAfter(ready, layer, larger, graph);
          next.emplace(std::move(larger), std::move(after));
        }
      }
      if (sets.size() + next.size() > limit) break;  // Refused in the next round.
    }
    level = std::move(next);
  }
  return sets;
}

bool DownSets::isSubset(size_t small, size_t large) const {
  if (isChain_) return small <= large;
  const uint64_t* a = &words_[small * wordsPerSet_];
  const uint64_t* b = &words_[large * wordsPerSet_];
  for (size_t i = 0; i < wordsPerSet_; ++i)
    if ((a[i] & ~b[i]) != 0) return false;
  return true;
}

std::vector<int32_t> DownSets::within(size_t set) const {
  std::vector<int32_t> result;
  for (size_t i = 0; i < set && sizes_[i] < sizes_[set]; ++i)
    if (isSubset(i, set)) result.push_back(static_cast<int32_t>(i));
  return result;
}

std::vector<int32_t> DownSets::difference(size_t small, size_t large) const {
  std::vector<int32_t> layers;
  for (const int32_t layer : order_)
    if (contains(large, layer) && !contains(small, layer)) layers.push_back(layer);
  return layers;
}

std::vector<double> borderBytes(const spec::ProfileSpec& profile, const DownSets& sets) {
  std::vector<double> result(sets.size());
  std::vector<double> ofLayer(profile.layers.size());
  for (size_t set = 0; set < sets.size(); ++set) {
    std::fill(ofLayer.begin(), ofLayer.end(), 0);
    for (const spec::ProfileEdge& edge : profile.edges)
      if (sets.contains(set, edge.from) && !sets.contains(set, edge.to)) {
        double& most = ofLayer[static_cast<size_t>(edge.from)];
        most = std::max(most, edge.transfer.count());
      }
    for (const double bytes : ofLayer) result[set] += bytes;
  }
  return result;
}

}  // namespace trireme::planner
