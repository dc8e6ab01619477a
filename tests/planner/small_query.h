// A query whose whole space can be costed in a test.
#pragma once
#include "planner/cuts.h"
#include "planner/query.h"
#include "planner/search.h"
#include "planner/space.h"
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

// Every plan of the space on `devices` devices.
inline std::vector<plan::Plan> everyPlan(const Query& query, int64_t devices,
                                         const CostFunctions& costs) {
  std::vector<plan::Plan> plans;
  std::vector<Rejection> rejections;
  for (const Group& group : groupsFor(query, devices, rejections))
    forEachPlan(query, group, [&](const plan::Plan& arrangement) {
      plan::Plan plan = arrangement;
      plan.layers = plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
      const auto blocks = costs.blocks(plan);
      if (!blocks.has_value()) return;
      for (auto& layers : cutsFor(query, arrangement, **blocks)) {
        plan.layers = layers;
        plans.push_back(plan);
      }
    });
  return plans;
}

// The same on any number of devices up to `devices`.
inline std::vector<plan::Plan> everyPlanUpTo(const Query& query, int64_t devices,
                                             const CostFunctions& costs) {
  std::vector<plan::Plan> plans;
  for (int64_t n = 1; n <= devices; ++n)
    for (plan::Plan& plan : everyPlan(query, n, costs)) plans.push_back(std::move(plan));
  return plans;
}

}  // namespace trireme::planner
