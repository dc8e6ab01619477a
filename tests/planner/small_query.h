// A query whose whole space can be costed in a test.
#pragma once
#include <algorithm>

#include "planner/cuts/best_cut.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/own_cuts.h"
#include "planner/query.h"
#include "planner/search/search.h"
#include "planner/space/space.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::planner {

inline Query smallQuery(int64_t devices = 4, int64_t layers = 4, int64_t batch = 8) {
  Query query;
  query.model = small::gpt(layers, 64, 4);
  query.training = small::training(batch, 32);
  query.cluster = small::cluster(devices, 2);
  return query;
}

// Devices a thousand times as slow on the same links, so that more of them are faster.
inline Query computeBound(Query query) {
  spec::DeviceSpec& device = query.cluster.device;
  for (spec::PeakRate& peak : device.matmul) peak.rate = peak.rate * 1e-3;
  device.memoryBandwidth = device.memoryBandwidth * 1e-3;
  return query;
}

// All that give every virtual stage a layer.
inline void addPinnedCuts(const plan::Plan& plan, std::vector<int64_t> layers, int64_t left,
                          std::vector<Ranges>& cuts) {
  const int64_t chunks = plan.pp * plan.virtualStages - static_cast<int64_t>(layers.size());
  if (chunks == 0) {
    if (left == 0) cuts.push_back(pinnedCut(layers, plan));
    return;
  }
  layers.push_back(0);
  for (layers.back() = 1; layers.back() <= left - chunks + 1; ++layers.back())
    addPinnedCuts(plan, layers, left - layers.back(), cuts);
}

inline std::vector<Ranges> everyCut(const plan::Plan& plan, int64_t numLayers) {
  std::vector<Ranges> cuts;
  addPinnedCuts(plan, {}, numLayers, cuts);
  return cuts;
}

using CutsOf = std::vector<Ranges>(const Query&, const plan::Plan&, const BlockCosts&);

// Of Trireme's own programs all, of which the search tries some and bounds the others.
inline std::vector<Ranges> allCuts(const Query& query, const plan::Plan& plan,
                                   const BlockCosts& blocks) {
  if (!query.stack.ownPrograms || !query.pins.layers.empty()) return cutsFor(query, plan, blocks);
  return everyCut(plan, query.model.numLayers);
}

// Of Trireme's own programs with those that moves of layers make, but for arrangements whose other
// cuts are too slow.
inline std::vector<Ranges> triedCuts(const Query& query, const plan::Plan& plan,
                                     const BlockCosts& blocks) {
  std::vector<Ranges> cuts = cutsFor(query, plan, blocks);
  if (!query.stack.ownPrograms || !query.pins.layers.empty()) return cuts;
  const size_t known = cuts.size();
  cost::FlushPlayer flush;
  for (BoundedCut& cut : ownCuts(query, plan, blocks, flush, cuts))
    if (std::find(cuts.begin(), cuts.begin() + static_cast<long>(known), cut.layers) ==
        cuts.begin() + static_cast<long>(known))
      cuts.push_back(std::move(cut.layers));
  return cuts;
}

// Every plan of the space on `devices` devices.
inline std::vector<plan::Plan> everyPlan(const Query& query, int64_t devices,
                                         const CostFunctions& costs, CutsOf cutsOf = triedCuts) {
  std::vector<plan::Plan> plans;
  std::vector<Rejection> rejections;
  for (const Group& group : groupsFor(query, devices, rejections))
    forEachPlan(query, group, [&](const plan::Plan& arrangement) {
      plan::Plan plan = arrangement;
      plan.layers = plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
      const auto blocks = costs.blocks(plan);
      if (!blocks.has_value()) return;
      for (auto& layers : cutsOf(query, arrangement, **blocks)) {
        plan.layers = layers;
        plans.push_back(plan);
      }
    });
  return plans;
}

// The same on any number of devices up to `devices`.
inline std::vector<plan::Plan> everyPlanUpTo(const Query& query, int64_t devices,
                                             const CostFunctions& costs,
                                             CutsOf cutsOf = triedCuts) {
  std::vector<plan::Plan> plans;
  for (int64_t n = 1; n <= devices; ++n)
    for (plan::Plan& plan : everyPlan(query, n, costs, cutsOf)) plans.push_back(std::move(plan));
  return plans;
}

// Whether chunks of a stage differ by more than one layer (best_cut.h).
inline bool leavesSpace(const plan::Plan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(), [](const auto& stage) {
    const auto [few, many] = std::minmax_element(
        stage.begin(), stage.end(), [](const auto& a, const auto& b) { return a.count < b.count; });
    return many->count > few->count + 1;
  });
}

}  // namespace trireme::planner
