// What a step waits for, from its begin to its end: the critical path of the simulation.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "cost_models/simulate.h"
#include "ir/base/status.h"
#include "planner/query.h"

namespace trireme::planner {

enum class PathPhase : uint8_t {
  kBegin,            // before the first microbatch: zeroing
  kFill,             // until the path comes to the stage on which it stays longest
  kSteady,           // on that stage
  kOtherStages,      // away from it in between: a microbatch's way there and back
  kDrain,            // after it
  kReduction,        // of gradients over replicas
  kGathering,        // of parameters over replicas
  kSynchronisation,  // other collectives of the step: tied embeddings, gradient norm
  kOptimizer,
};
std::string_view phaseName(PathPhase phase);

struct PathPart {
  PathPhase phase = PathPhase::kSteady;
  std::vector<int64_t> stages;  // in the order in which the path comes to them
  // Passes of a microbatch through a chunk; of a split backward W apart.
  int64_t numForward = 0, numBackward = 0, numWeights = 0;
  Seconds forward, backward, weights;  // of these, with their collectives
  Seconds tensorParallel;              // of all passes: collectives
  Seconds transfers;                   // between stages
  Seconds step;                        // what is done once
  Seconds total() const { return forward + backward + weights + transfers + step; }
};

struct CriticalPath {
  Seconds simulated;            // the step, and what the parts add up to
  Seconds estimated;            // Estimate::step
  std::vector<PathPart> parts;  // in the order of phases; none of no length
  // With post-validation the estimate is of steps that follow each other, and this of one.
  bool isAlone = false;
};

// The path of `simulation` (with SimulationOptions::path) in phases.
CriticalPath phasesOf(const cost::Simulation& simulation, Seconds estimated);

// The same of the query's plan, which says whether it is of one step alone.
CriticalPath pathOf(const Query& query, const plan::Plan& plan, const cost::Simulation& simulation,
                    Seconds estimated);

// Of the plan played on the query's cluster. Errors: those of playPlan (timeline.h).
Result<CriticalPath> criticalPath(const Query& query, const plan::Plan& plan, Seconds estimated);

}  // namespace trireme::planner
