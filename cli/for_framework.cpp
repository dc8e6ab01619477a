#include "cli/for_framework.h"

#include <fmt/format.h>

#include <utility>

#include "codegen/export/export.h"
#include "ir/spec/load.h"
#include "planner/question.h"
#include "planner/search/pins.h"

namespace trireme::cli {
Result<spec::StackProfile> loadStackFor(const std::string& path,
                                        std::optional<codegen::Framework> framework) {
  if (!framework) return planner::loadStackOrDefault(path);
  TRIREME_ASSIGN_OR_RETURN(
      spec::StackProfile stack,
      spec::loadStack(path.empty() ? std::string(infoOf(*framework).stack) : path));
  return codegen::restrictedTo(std::move(stack), *framework);
}

Result<std::vector<spec::StackProfile>> stacksBeside(std::optional<codegen::Framework> framework) {
  if (!framework) return planner::shippedStacks();
  TRIREME_ASSIGN_OR_RETURN(spec::StackProfile own, loadStackFor("", framework));
  return std::vector{std::move(own)};
}

std::optional<std::string> noteOfStack(const std::string& stack, codegen::Framework framework) {
  if (codegen::frameworkOfStack(stack) == framework) return std::nullopt;
  return fmt::format("the times are those of stack '{}', not of {} (stack '{}')", stack,
                     infoOf(framework).title, infoOf(framework).stack);
}

Status checkAsked(const planner::Query& query, codegen::Framework framework) {
  std::vector<codegen::Misfit> misfits = misfitsOf(query.model, query.training, framework);
  planner::Pins pins = query.pins;
  if (!query.stack.ownPrograms) pins.overlapReductions.reset();  // is no choice (checkPins)
  for (codegen::Misfit& misfit : misfitsOf(planner::pinnedChoices(pins), framework))
    misfits.push_back(std::move(misfit));
  if (!infoOf(framework).padsVocabulary && query.vocabMultiple != 1)
    misfits.push_back({fmt::format("--vocab-multiple {}", query.vocabMultiple), "1"});
  return statusOf(misfits, framework);
}

}  // namespace trireme::cli
