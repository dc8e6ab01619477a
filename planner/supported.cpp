#include "planner/supported.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/expand/buildable.h"
#include "ir/plan/choices.h"

namespace trireme::planner {

namespace {

using plan::StateSharding;
using spec::StackChoice;

struct Sharding {
  StateSharding kind;
  StackChoice choice;
};
constexpr Sharding kShardings[] = {{StateSharding::kParameters, StackChoice::kShardParameters},
                                   {StateSharding::kGradients, StackChoice::kShardGradients},
                                   {StateSharding::kOptimizer, StackChoice::kShardOptimizer}};

// What the stack shares instead: the most of it, for a plan that wanted to save memory.
std::string nearestOf(const plan::ChoiceUse& use, const spec::StackProfile& stack) {
  const auto isSharding = [&](const Sharding& s) { return s.choice == use.choice; };
  if (std::none_of(std::begin(kShardings), std::end(kShardings), isSharding)) return use.nearest;
  for (const Sharding& sharding : kShardings)
    if (stack.supports(sharding.choice))
      return fmt::format("state sharding {}", plan::stateShardingName(sharding.kind));
  return use.nearest;
}

// What the profile lists may be missing on this device or in this precision.
std::string_view whyNot(const plan::ChoiceUse& use, const spec::StackProfile& stack) {
  const bool isContext = use.choice == StackChoice::kContextParallel;
  return isContext && !stack.ownPrograms && !spec::isFlash(stack.description.attention)
             ? " without fused attention (which needs 16 bits and compute capability 8.0)"
             : "";
}

}  // namespace

Status checkSupported(const plan::Plan& plan, const spec::ModelSpec& model,
                      const spec::StackProfile& stack) {
  TRIREME_RETURN_IF_ERROR(checkChoices(plan, stack));
  std::optional<plan::RuleBreach> breach = plan::fp8Breach(plan, model, stack.settings);
  for (const spec::StackRule rule : stack.rules)
    if (!breach) breach = plan::breachOf(plan, rule);
  if (!breach) return {};
  return invalidArgument(
      fmt::format("stack '{}' has no {}; nearest: {}", stack.name, breach->value, breach->nearest));
}

Status checkChoices(const plan::Plan& plan, const spec::StackProfile& stack) {
  if (stack.ownPrograms) TRIREME_RETURN_IF_ERROR(expand::checkBuildable(plan));
  for (const plan::ChoiceUse& use : plan::choicesUsed(plan))
    if (!stack.supports(use.choice))
      return invalidArgument(fmt::format("stack '{}' has no {}{}; nearest: {}", stack.name,
                                         use.value, whyNot(use, stack), nearestOf(use, stack)));
  if (!plan::rankOrderGoesWithSharding(plan))
    return invalidArgument(fmt::format(
        "stack '{}' has no rank order {} with state sharding {}; nearest: rank order {}",
        stack.name, plan::rankOrderName(plan.rankOrder),
        plan::stateShardingName(plan.stateSharding),
        plan::rankOrderName(plan::RankOrder::kTpCpDpPp)));
  return {};
}

}  // namespace trireme::planner
