// From a model and a plan to programs with every buffer placed. Plain C++: the planner calls it for
// memory and costs, the compiler for code. Chooses nothing: the plan has.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/model_spec.h"

namespace trireme::expand {

// Bytes of one role's arena, by purpose. They add up to Role::arenaBytes exactly.
struct ArenaUse {
  int64_t parameters = 0;  // compute dtype
  int64_t gradients = 0;
  int64_t optimizer = 0;           // master weights and moments
  int64_t activations = 0;         // all slots of all chunks
  int64_t scratch = 0;             // temporaries of one body at a time
  int64_t workspace = 0;           // library kernels
  int64_t other = 0;               // norms, losses, alignment
  std::vector<int64_t> slotBytes;  // per chunk, of `activations`: one microbatch in flight
  int64_t total() const {
    return parameters + gradients + optimizer + activations + scratch + workspace + other;
  }
};

struct Expansion {
  program::Program program;
  std::vector<ArenaUse> arenas;  // one per program.roles
  // One per program.segments: so many of its ops, the first ones, are of the forward and computed
  // again by the backward.
  std::vector<int32_t> recomputedOps;
};

struct ExpandOptions {
  // false: Role::tasks and Program::ranks/groups stay empty (all the planner needs): the cost is
  // then independent of the numbers of microbatches and ranks.
  bool tasks = true;
  // false: stages but the first and the last have no bodies, for who asks what these hold alone.
  bool innerBodies = true;
  // Of the same model and training, for several calls.
  graph::Graphs* graphs = nullptr;
};

// Where a role's bodies are, as indices into Role::bodies.
inline constexpr int32_t kBeginBody = 0;  // before the first microbatch
inline constexpr int32_t kStepBody = 1;   // after the last
constexpr int32_t forwardBody(int32_t chunk) { return 2 + 2 * chunk; }
constexpr int32_t backwardBody(int32_t chunk) { return 3 + 2 * chunk; }
// Of the last microbatch: under overlapReductions over dp it reduces gradients.
int32_t lastBackwardBody(const plan::Plan& plan, int32_t chunk);
// Where the plan's schedule splits the backward.
int32_t weightsBody(const plan::Plan& plan, int32_t chunk);
int32_t lastWeightsBody(const plan::Plan& plan, int32_t chunk);

// kInvalidArgument: the plan breaks one of its rules (verifyPlan), or asks for what cannot be built
//   (checkBuildable).
Result<Expansion> expand(const spec::ModelSpec& model, const plan::Plan& plan,
                         const ExpandOptions& options = {});

}  // namespace trireme::expand
