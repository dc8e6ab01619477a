#include "planner/supported.h"

#include <fmt/format.h>

#include "ir/expand/buildable.h"
#include "ir/plan/choices.h"

namespace trireme::planner {

Status checkSupported(const plan::Plan& plan, const spec::StackProfile& stack) {
  if (stack.ownPrograms) TRIREME_RETURN_IF_ERROR(expand::checkBuildable(plan));
  for (const plan::ChoiceUse& use : plan::choicesUsed(plan))
    if (!stack.supports(use.choice))
      return invalidArgument(
          fmt::format("stack '{}' has no {}; nearest: {}", stack.name, use.value, use.nearest));
  return {};
}

}  // namespace trireme::planner
