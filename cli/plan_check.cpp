#include "cli/plan_check.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/write_file.h"
#include "codegen/import/import.h"
#include "ir/program/trace.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "planner/answer/check.h"
#include "planner/answer/report.h"
#include "planner/answer/timeline.h"

namespace trireme::cli {
namespace {

// What the plan is held against: plans that its program can run.
Status restrict(codegen::Framework framework, const plan::Plan& plan, planner::Query& query) {
  TRIREME_ASSIGN_OR_RETURN(
      query.stack,
      codegen::restrictedTo(query.stack, framework, planner::onHostsOf(query.cluster, plan)));
  return {};
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

Result<int> runCheck(const CheckOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(options.plan));
  TRIREME_ASSIGN_OR_RETURN(const codegen::Imported file,
                           codegen::readPlan(text, options.plan, model, options.launch));
  for (const std::string& note : notesOf(file, options.plan)) tell("note: {}\n", note);
  const plan::Plan plan = planner::asLaunched(file.plan, file.ranksPerHost, cluster);
  TRIREME_ASSIGN_OR_RETURN(
      planner::Query query,
      planner::pricingQuery(plan, options.plan, model, std::move(cluster), options.stack));
  if (const std::string note = setWidths(file, options.plan, query.stack); !note.empty())
    tell("note: {}\n", note);
  const spec::StackProfile full = query.stack;
  if (const std::string note =
          planner::overlapNote(plan, options.plan, setOverlap(file, query.stack), query, full);
      !note.empty())
    tell("note: {}\n", note);
  if (file.framework) TRIREME_RETURN_IF_ERROR(restrict(*file.framework, plan, query));
  if (const std::string note = planner::otherStackNote(plan, options.plan, query.stack);
      !note.empty())
    tell("note: {}\n", note);
  if (const std::string note =
          planner::otherHostsNote(plan, options.plan, file.ranksPerHost, query.cluster);
      !note.empty())
    tell("note: {}\n", note);
  for (const std::string& caveat : planner::caveatsOf(query.stack, query.cluster.device))
    tell("note: {}\n", caveat);
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
    fmt::print("{}\n", jsonText(planner::toJson(*check)));
    return kExitOk;
  }
  fmt::print("{}", toText(*check, query));
  for (const std::string* path : {&options.report, &options.trace})
    if (!path->empty()) fmt::print("{:<14}{}\n", "written to", *path);
  return kExitOk;
}

}  // namespace trireme::cli
