// What Trireme builds of all that a plan can say.
#pragma once
#include "ir/base/status.h"
#include "ir/plan/plan.h"

namespace trireme::expand {

// A legal plan (plan::verifyPlan) describes a run of any stack; these rules bind only plans that
// Trireme is to compile. The message starts with the label, names the choice and the nearest one
// that can be built.
//
// (E1) cp is 1
// (E2) state sharding is none or optimizer
// (E3) sharded state is not replicated: dpReplicate is 1
// (E4) full recomputation is of all layers: recomputeLayers is 0
// (E5) the precision is fp64, fp32, bf16 or fp16
// (E6) every virtual stage has a layer
// (E7) a step, whose program names every microbatch, has at most kMostMicrobatches
//
// Errors: kInvalidArgument.
inline constexpr int64_t kMostMicrobatches = 131072;
Status checkBuildable(const plan::Plan& plan);

}  // namespace trireme::expand
