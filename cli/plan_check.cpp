#include "cli/plan_check.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/progress.h"
#include "cli/write_file.h"
#include "codegen/import/megatron.h"
#include "ir/program/trace.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "planner/check.h"
#include "planner/report.h"
#include "planner/timeline.h"

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

// A plan of ours, or one in the words of Megatron-LM, which is priced as Megatron-Core unless
// --stack says otherwise. Flags that do not count are noted.
Result<plan::Plan> loadPlan(CheckOptions& options, const spec::ModelSpec& model,
                            const spec::ClusterSpec& cluster) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(options.plan));
  if (!codegen::isMegatron(text)) return plan::parsePlan(text, options.plan);
  TRIREME_ASSIGN_OR_RETURN(const codegen::Imported imported,
                           codegen::importMegatron(text, options.plan, model, cluster.numDevices));
  for (const std::string& flag : imported.unpriced)
    fmt::print(stderr, "note: {}: {} is not known here and does not count\n", options.plan, flag);
  if (options.stack.empty()) options.stack = imported.plan.stack;
  return imported.plan;
}

Result<planner::Query> makeQuery(const CheckOptions& options, const plan::Plan& plan,
                                 const spec::ModelSpec& model, spec::ClusterSpec cluster) {
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

std::string toText(const planner::PlanCheck& check, const planner::Query& query) {
  return planner::toText(query) + planner::toTable(check, query.cluster);
}

Status writeFiles(const CheckOptions& options, const planner::Query& query,
                  const planner::PlanCheck& check) {
  if (options.report.empty() && options.trace.empty()) return {};
  cost::SimulationOptions simulation;
  simulation.tasks = true;
  simulation.trace = !options.trace.empty();
  TRIREME_ASSIGN_OR_RETURN(const planner::PlayedPlan played,
                           planner::playPlan(query, check.plan, simulation));
  if (!options.trace.empty())
    TRIREME_RETURN_IF_ERROR(writeFile(
        options.trace, program::toPerfettoJson(played.program, played.simulation.events)));
  TRIREME_ASSIGN_OR_RETURN(const planner::Timeline timeline,
                           planner::timelineOf(query, check.plan, played));
  const std::string title = fmt::format("{} on {}", query.model.name, query.cluster.name);
  return writeReport(options.report, {"check", title, planner::toText(query), toText(check, query)},
                     planner::toJson(check), planner::toJson(timeline));
}

}  // namespace

Result<int> runCheck(CheckOptions options) {
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  TRIREME_ASSIGN_OR_RETURN(const plan::Plan plan, loadPlan(options, model, cluster));
  if (const Status status = plan::verifyPlan(plan, model); !status.ok())
    return Error(status.withContext(options.plan));
  TRIREME_ASSIGN_OR_RETURN(const planner::Query query,
                           makeQuery(options, plan, model, std::move(cluster)));
  Progress progress;
  const auto show = [&](const planner::SearchState& state) {
    progress.update(
        static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups),
        "searching for the best plan");
  };
  const Result<planner::PlanCheck> check = planner::checkPlan(plan, query, show);
  progress.clear();
  if (!check.has_value()) return Error(check.error().withContext(options.plan));
  TRIREME_RETURN_IF_ERROR(writeFiles(options, query, *check));
  if (options.json) {
    fmt::print("{}\n", planner::toJson(*check).dump(2));
    return kExitOk;
  }
  fmt::print("{}", toText(*check, query));
  for (const std::string* path : {&options.report, &options.trace})
    if (!path->empty()) fmt::print("{:<14}{}\n", "written to", *path);
  return kExitOk;
}

}  // namespace trireme::cli
