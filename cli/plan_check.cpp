#include "cli/plan_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/for_framework.h"
#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/progress.h"
#include "cli/write_file.h"
#include "codegen/import/import.h"
#include "ir/program/trace.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/check.h"
#include "planner/report.h"
#include "planner/timeline.h"

namespace trireme::cli {
namespace {

// What is no plan may be a file that is not known by its contents.
Result<plan::Plan> parseOwn(const std::string& text, const std::string& path) {
  Result<plan::Plan> plan = plan::parsePlan(text, path);
  if (plan.has_value() || text.find("\nfingerprint:") != std::string::npos) return plan;
  return Error(invalidArgument(fmt::format(
      "{}\nread as a plan of trireme, since it is no TOML of torchtitan (*.toml), no JSON of "
      "DeepSpeed (with \"zero_optimization\" or \"train_batch_size\"), and no command line or "
      "script of Megatron-LM (with --micro-batch-size)",
      plan.error().message())));
}

// A plan of ours, or one in the words of another program, which is priced as that unless --stack
// says otherwise. Settings that do not count are noted.
struct CheckedFile {
  plan::Plan plan;
  std::optional<codegen::Framework> framework;  // of another program
};

codegen::Framework frameworkOf(codegen::ForeignFormat format) {
  switch (format) {
    case codegen::ForeignFormat::kMegatron:
      return codegen::Framework::kMegatron;
    case codegen::ForeignFormat::kTorchtitan:
      return codegen::Framework::kTorchtitan;
    case codegen::ForeignFormat::kDeepspeed:
      return codegen::Framework::kDeepspeed;
  }
  return codegen::Framework::kMegatron;
}

Result<CheckedFile> loadFile(CheckOptions& options, const spec::ModelSpec& model) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(options.plan));
  const std::optional<codegen::ForeignFormat> format = codegen::foreignFormat(text, options.plan);
  if (!format) {
    if (options.launch != codegen::LaunchOptions{})
      return Error(invalidArgument(fmt::format(
          "{}: a plan says all of it: leave out --gpus, --tp, --seq, --batch, --microbatch and "
          "--recompute",
          options.plan)));
    TRIREME_ASSIGN_OR_RETURN(plan::Plan plan, parseOwn(text, options.plan));
    if (options.stack.empty() && spec::findShipped(spec::ShippedKind::kStack, plan.stack))
      options.stack = plan.stack;
    return CheckedFile{std::move(plan), std::nullopt};
  }
  TRIREME_ASSIGN_OR_RETURN(const codegen::Imported imported,
                           codegen::importPlan(*format, text, options.plan, model, options.launch));
  if (!imported.unpriced.empty())
    fmt::print(stderr, "note: {}: not known here and not counted: {}\n", options.plan,
               fmt::join(imported.unpriced, ", "));
  if (options.stack.empty()) options.stack = imported.plan.stack;
  return CheckedFile{imported.plan, frameworkOf(*format)};
}

// What the plan is held against: plans that its program can run.
Status restrict(codegen::Framework framework, planner::Query& query) {
  TRIREME_ASSIGN_OR_RETURN(query.stack, codegen::restrictedTo(std::move(query.stack), framework));
  pinFor(framework, query);
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

Result<int> runCheck(CheckOptions options) {
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  TRIREME_ASSIGN_OR_RETURN(const CheckedFile file, loadFile(options, model));
  const plan::Plan& plan = file.plan;
  TRIREME_ASSIGN_OR_RETURN(
      planner::Query query,
      planner::pricingQuery(plan, options.plan, model, std::move(cluster), options.stack));
  if (file.framework) TRIREME_RETURN_IF_ERROR(restrict(*file.framework, query));
  if (const std::string note = planner::otherStackNote(plan, options.plan, query.stack);
      !note.empty())
    fmt::print(stderr, "note: {}\n", note);
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
