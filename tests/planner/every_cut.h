// Plans of Trireme's own programs with few enough layers that all cuts can be costed.
#pragma once
#include <random>
#include <vector>

#include "tests/planner/small_query.h"

namespace trireme::planner {

// Ends that weigh as much as several layers, an optimizer that takes much of a step of few
// microbatches, transfers that take time.
inline Query ownQuery(std::mt19937& random) {
  const int64_t batches[] = {1, 2, 3, 4, 12};
  Query query = smallQuery(8, 4 + static_cast<int64_t>(random() % 5), batches[random() % 5]);
  query.model.vocabSize = 64 << (random() % 8);
  query.model.tiedEmbeddings = random() % 2 == 0;
  query = computeBound(query);
  for (spec::LinkTier& tier : query.cluster.tiers)
    tier.bandwidth = tier.bandwidth * std::uniform_real_distribution<double>(0.001, 0.1)(random);
  query.stack.overlapPipelineTransfers = random() % 2 == 0;
  return query;
}

inline plan::Plan ownPlan(const Query& query, std::mt19937& random) {
  plan::Plan plan = small::plan(query.model, query.training, 1, 1, 1);
  plan.pp = 2 + static_cast<int64_t>(random() % 3);
  plan.microbatchSize = 1;
  const int64_t chunks = query.model.numLayers / plan.pp;
  if (chunks > 1 && plan.numMicrobatches() % plan.pp == 0 && random() % 2 == 0) {
    plan.schedule = plan::ScheduleKind::kInterleaved;
    plan.virtualStages = 2;
  } else if (random() % 3 == 0) {
    plan.schedule = plan::ScheduleKind::kGpipe;
  }
  return plan;
}

}  // namespace trireme::planner
