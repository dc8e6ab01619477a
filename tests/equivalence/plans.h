// The plans that the equivalence tests run: every pair of choices occurs in one of them.
#pragma once
#include <string>
#include <vector>

#include "ir/plan/plan.h"

namespace trireme::equivalence {

struct Choices {
  int64_t tp = 1, pp = 1, dp = 1, virtualStages = 1;
  plan::ScheduleKind schedule = plan::ScheduleKind::k1F1B;
  plan::Recompute recompute = plan::Recompute::kNone;
  bool sequenceParallel = false, shardOptimizer = false, scatterGather = false, uneven = false;
  int64_t microbatchSize = 1;
  bool overlapReductions = false;
  plan::RankOrder rankOrder = plan::RankOrder::kTpCpDpPp;
};

// Layers that a plan of these choices needs: 8, or 16 for 16 chunks, and for 8 uneven ones.
int64_t layersFor(const Choices& choices);
plan::Plan planFor(const Choices& choices, const spec::ModelSpec& model,
                   const spec::TrainingSpec& training);
std::string describe(const Choices& choices);

// At least 64 legal combinations. Every pair of values of two choices that is legal together
// occurs.
const std::vector<Choices>& coveringChoices();

}  // namespace trireme::equivalence
