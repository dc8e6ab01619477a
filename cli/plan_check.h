// trireme plan --check: a plan that somebody wrote, or a command line of Megatron-LM, priced and
// set beside the best one.
#pragma once
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

struct CheckOptions {
  std::string plan, model, cluster, stack;  // paths; no stack: Trireme's own, or Megatron-Core
  std::string report, trace;                // files to write; empty: none
  bool json = false;
};

// Prints the answer and returns the exit code: 0 also of a plan that does not fit, which is what
// was asked. Errors: planner::checkPlan, with the plan's file; kInvalidArgument if the plan was
// made for another stack than Trireme's own and --stack is missing; codegen::importMegatron.
Result<int> runCheck(CheckOptions options);

}  // namespace trireme::cli
