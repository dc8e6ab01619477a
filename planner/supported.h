// What a stack can do of all that a plan can say.
#pragma once
#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/stack_profile.h"

namespace trireme::planner {

// kInvalidArgument: the plan asks for something that the stack does not do (StackProfile::choices).
// The message names the choice, its value in the plan and the nearest one that the stack has. So it
// is of the stack's rules and of products in fp8. Of stacks with programs of our own also what
// expand::checkBuildable says.
Status checkSupported(const plan::Plan& plan, const spec::ModelSpec& model,
                      const spec::StackProfile& stack);
// But for the rules, of choices that a search is to complete.
Status checkChoices(const plan::Plan& plan, const spec::StackProfile& stack);

}  // namespace trireme::planner
