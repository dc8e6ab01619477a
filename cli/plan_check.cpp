#include "cli/plan_check.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/inputs.h"
#include "cli/output/progress.h"
#include "ir/spec/load.h"
#include "planner/check.h"
#include "planner/report.h"

namespace trireme::cli {
namespace {

// The plan's name of its stack changes no number, so a profile has to be given; another one is
// another question, which may be asked.
Status checkStack(const CheckOptions& options, const plan::Plan& plan,
                  const spec::StackProfile& stack) {
  if (plan.stack == stack.name) return {};
  if (options.stack.empty())
    return invalidArgument(
        fmt::format("the plan was made for stack '{}': give its profile with --stack", plan.stack));
  fmt::print(stderr, "note: {}: made for stack '{}', priced for '{}'\n", options.plan, plan.stack,
             stack.name);
  return {};
}

Result<planner::Query> makeQuery(const CheckOptions& options, const plan::Plan& plan,
                                 const spec::ModelSpec& model) {
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack, loadStackOrDefault(options.stack));
  if (const Status status = checkStack(options, plan, stack); !status.ok())
    return Error(status.withContext(options.plan));
  if (cluster.scalable && plan.numRanks() > cluster.numDevices) {
    Result<spec::ClusterSpec> grown = spec::withNumDevices(cluster, plan.numRanks());
    if (!grown.has_value()) return Error(grown.error().withContext(options.plan));
    cluster = *std::move(grown);
  }
  return planner::queryOf(plan, model, cluster, stack);
}

}  // namespace

Result<int> runCheck(const CheckOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(const plan::Plan plan, plan::loadPlan(options.plan));
  if (const Status status = plan::verifyPlan(plan, model); !status.ok())
    return Error(status.withContext(options.plan));
  TRIREME_ASSIGN_OR_RETURN(const planner::Query query, makeQuery(options, plan, model));
  Progress progress;
  const auto show = [&](const planner::SearchState& state) {
    progress.update(
        static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups),
        "searching for the best plan");
  };
  const Result<planner::PlanCheck> check = planner::checkPlan(plan, query, show);
  progress.clear();
  if (!check.has_value()) return Error(check.error().withContext(options.plan));
  if (options.json)
    fmt::print("{}\n", planner::toJson(*check).dump(2));
  else
    fmt::print("{}{}", planner::toText(query), planner::toTable(*check, query.cluster));
  return kExitOk;
}

}  // namespace trireme::cli
