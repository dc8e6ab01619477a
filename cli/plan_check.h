// trireme plan --check: a plan that somebody wrote, in our words or in those of Megatron-LM,
// torchtitan or DeepSpeed, priced and set beside the best one.
#pragma once
#include <string>

#include "codegen/import/import.h"
#include "ir/base/status.h"

namespace trireme::cli {

struct CheckOptions {
  // Paths; no stack: Trireme's own, or the other program's.
  std::string plan, model, cluster, stack;
  std::string report, trace;      // files to write; empty: none
  codegen::LaunchOptions launch;  // what a file of another program leaves open
  bool json = false;
};

// Prints the answer and returns the exit code: 0 also of a plan that does not fit, which is what
// was asked. Errors: planner::checkPlan, with the plan's file; kInvalidArgument if the plan was
// made for a stack that is not shipped and --stack is missing; codegen::readPlan.
Result<int> runCheck(const CheckOptions& options);

}  // namespace trireme::cli
