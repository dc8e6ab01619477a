// trireme plan: recommends a plan and says why.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/for_framework.h"
#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/partition.h"
#include "cli/paths.h"
#include "cli/pin_flags.h"
#include "cli/plan_check.h"
#include "cli/predict.h"
#include "cli/whatif/sweep_file.h"
#include "cli/write_file.h"
#include "codegen/export/framework.h"
#include "ir/base/format.h"
#include "ir/program/trace.h"
#include "ir/spec/load.h"
#include "planner/answer/recommend.h"
#include "planner/answer/report.h"
#include "planner/answer/timeline.h"
#include "planner/certainty.h"
#include "planner/plan_text.h"
#include "planner/search/relax.h"
#include "planner/search/search.h"

namespace trireme::cli {
namespace {

struct PlanOptions {
  QueryOptions question;
  std::string output;
  std::optional<codegen::Framework> framework;  // that is to run the plan
  std::optional<std::string> headroom;
  planner::Pins pins;
  int64_t topK = planner::Query{}.topK;
  bool explain = false;
  bool json = false;
  std::string report, trace;  // files
  std::string check;          // a plan to check instead of searching for one to recommend
  PredictOptions predict;
  PartitionOptions partition;
};

// What --for still leaves in the best plan, because no choice of the search excludes it.
Status checkExpressible(const PlanOptions& options, const planner::Query& query,
                        const plan::Plan& plan) {
  if (!options.framework) return {};
  const Status status =
      statusOf(misfitsOf(plan, query.model, *options.framework), *options.framework);
  if (status.ok()) return {};
  return infeasible(fmt::format("the best plan is {}, but {}: pin the nearest choice",
                                planner::summary(plan), status.message()));
}

Result<planner::Query> makeQuery(const PlanOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(spec::StackProfile stack,
                           loadStackFor(options.question.stack, options.framework));
  TRIREME_ASSIGN_OR_RETURN(planner::Query query, loadQuery(options.question, std::move(stack)));
  query.pins = options.pins;
  if (options.framework) TRIREME_RETURN_IF_ERROR(checkAsked(query, *options.framework));
  TRIREME_RETURN_IF_ERROR(growCluster(options.pins.gpus, options.question.cluster, query.cluster));
  if (options.headroom)
    TRIREME_RETURN_IF_ERROR(planner::keepFree(*options.headroom, query.cluster.device));
  if (options.framework)
    if (const auto note = noteOfStack(query.stack.name, *options.framework))
      tell("note: {}\n", *note);
  query.topK =
      static_cast<int32_t>(std::min<int64_t>(options.topK, std::numeric_limits<int32_t>::max()));
  return query;
}

// Why there is no plan, and what would give one; as JSON too, if asked for.
Status explainFailure(const PlanOptions& options, const planner::Query& query, const Status& reason,
                      Progress& progress) {
  if (reason.code() != StatusCode::kInfeasible) return reason;
  const auto show = [&](const planner::SearchState& state) {
    progress.update(
        static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups),
        "looking for changes that would fit");
  };
  TRIREME_ASSIGN_OR_RETURN(const std::vector<spec::StackProfile> stacks,
                           stacksBeside(options.framework));
  const Result<planner::Shortfall> found = planner::shortfallOf(query, reason, stacks, show);
  progress.clear();
  if (!found.has_value()) return found.error();
  const planner::Shortfall& shortfall = *found;
  if (options.json) fmt::print("{}\n", jsonText(planner::toJson(shortfall)));
  const Status status = planner::toStatus(shortfall);
  const bool mayHelp = shortfall.nearest && spec::checkPrecision({}, query.training).ok();
  if (!options.framework || !shortfall.changes.empty() || !mayHelp) return status;
  return {status.code(), fmt::format("{} for {}; other software is tried without --for",
                                     status.message(), infoOf(*options.framework).title)};
}

Result<planner::Recommendation> findPlan(const PlanOptions& options, const planner::Query& query) {
  Progress progress;
  const auto show = [&](const planner::SearchState& state) {
    progress.update(
        static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups),
        fmt::format("{} of {} groups opened, {} plans bounded, {} costed", state.numGroupsOpened,
                    state.numGroups, state.numBounded, state.numCosted));
  };
  Result<planner::PlanResult> searched =
      planner::searchPlan(query, planner::modelCosts(query), show);
  if (!searched.has_value())
    return Error(explainFailure(options, query, searched.error(), progress));
  const auto shown = [&](double done, const std::string& what) { progress.update(done, what); };
  // Schedules are played in a millisecond; Trireme's own programs take tens of them.
  const bool playsRunnersUp =
      options.explain || options.json || !options.report.empty() || !query.stack.ownPrograms;
  auto found = planner::recommend(query, *std::move(searched),
                                  {.looksAround = options.explain,
                                   .playsRunnersUp = playsRunnersUp,
                                   .tasks = !options.report.empty(),
                                   .trace = !options.trace.empty()},
                                  shown);
  progress.clear();
  if (found.has_value())
    TRIREME_RETURN_IF_ERROR(checkExpressible(options, query, found->result.plan));
  return found;
}

// -o, --trace, --report.
Status writeFiles(const PlanOptions& options, const planner::Query& query,
                  const planner::Recommendation& answer) {
  const plan::Plan& plan = answer.result.plan;
  if (!options.output.empty())
    TRIREME_RETURN_IF_ERROR(writeFile(options.output, plan::printPlan(plan)));
  if (!options.output.empty() && answer.roomier && answer.roomier->plan)
    tell(
        "note: {}: the plan may need more memory than there is ({}); the one with room is written "
        "with --headroom '{}'\n",
        options.output, planner::doubtText(answer.result.estimate),
        planner::certainRoomText(answer.result.estimate));
  if (!options.trace.empty())
    TRIREME_RETURN_IF_ERROR(
        writeFile(options.trace,
                  program::toPerfettoJson(answer.played.program, answer.played.simulation.events)));
  if (options.report.empty()) return {};
  TRIREME_ASSIGN_OR_RETURN(const planner::Timeline timeline,
                           planner::timelineOf(query, plan, answer.played));
  const std::string title = fmt::format("{} on {}", query.model.name, query.cluster.name);
  // The picture of the critical path costs nothing here.
  return writeReport(options.report,
                     {"plan", title, planner::toText(query), toText(answer, query, true)},
                     toJson(answer, true), planner::toJson(timeline));
}

Status checkPaths(const PlanOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkOutputs(
      {{"--model", options.question.model},
       {"--cluster", options.question.cluster},
       {"--train", options.question.training},
       {"--stack", options.question.stack},
       {"--check", options.check}},
      {{"-o", options.output}, {"--report", options.report}, {"--trace", options.trace}}));
  for (const std::string* path : {&options.output, &options.report, &options.trace}) {
    TRIREME_RETURN_IF_ERROR(checkWritable(*path));
    if (holdsAnswers(*path))
      return invalidArgument(
          fmt::format("{}: holds the answers of trireme whatif; give another file", *path));
  }
  return {};
}

Result<int> runSearch(const PlanOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const planner::Query query, makeQuery(options));
  TRIREME_ASSIGN_OR_RETURN(const planner::Recommendation answer, findPlan(options, query));
  TRIREME_RETURN_IF_ERROR(writeFiles(options, query, answer));
  if (options.json) {
    fmt::print("{}\n", jsonText(toJson(answer, options.explain)));
    return kExitOk;
  }
  fmt::print("{}", toText(answer, query, options.explain));
  for (const std::string* path : {&options.output, &options.report, &options.trace})
    if (!path->empty()) fmt::print("{:<14}{}\n", "written to", *path);
  return kExitOk;
}

Result<int> runPlan(const PlanOptions& options) {
  if (!options.predict.rows.empty())
    return runPredict(options.predict, options.output, options.json);
  if (!options.partition.profile.empty())
    return runPartition(options.partition, {options.pins.gpus, options.question.cluster,
                                            options.output, options.json});
  TRIREME_RETURN_IF_ERROR(checkPaths(options));
  if (!options.check.empty())
    return runCheck({options.check,
                     options.question.model,
                     options.question.cluster,
                     options.question.stack,
                     options.report,
                     options.trace,
                     {options.pins.gpus, options.pins.tp, options.question.sequence,
                      options.question.batch, options.pins.microbatchSize, options.pins.recompute},
                     options.json});
  return runSearch(options);
}

// Everything that the plan says itself, or that recommends another, goes without --check; what
// files of other programs may leave open stays.
void addCheck(CLI::App& app, std::string& path) {
  CLI::Option* check = addPath(app, "--check", &path, "PLAN",
                               "Price a plan, or a file of Megatron-LM, torchtitan or DeepSpeed");
  const std::set<std::string> kept = {
      "--help", "--model", "--cluster",    "--stack", "--json",      "--check",  "--gpus",
      "--tp",   "--seq",   "--microbatch", "--batch", "--recompute", "--report", "--trace"};
  for (CLI::Option* option : app.get_options())
    if (!kept.contains(option->get_name())) check->excludes(option);
}

Action addPlan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  addPath(app, "--model", &options->question.model, "NAME|FILE",
          "Model: one of examples/models, YAML, or a Hugging Face config.json")
      ->required();
  addPath(app, "--cluster", &options->question.cluster, "NAME|FILE",
          "Cluster, devices and links: one of examples/clusters, or YAML")
      ->required();
  addPath(app, "--train", &options->question.training, "FILE", "Training settings");
  addPath(app, "--stack", &options->question.stack, "NAME|FILE",
          "Software: one of examples/stacks, or YAML (default: Trireme's own)");
  addChoice(app, "--for", &options->framework, codegen::frameworkName,
            codegen::Framework::kAccelerate,
            "Only plans that this program can run (trireme export), with its stack");
  addCount(app, "--batch", &options->question.batch,
           "Sequences per step; overrides the --train file");
  addCount(app, "--seq", &options->question.sequence,
           "Tokens per sequence; overrides the --train file");
  addChoice(app, "--precision", &options->question.precision, spec::precisionName,
            spec::Precision::kFp8,
            "Overrides the --train file (default: bf16 where stack and GPU have it)");
  addCount(app, "--vocab-multiple", &options->question.vocabMultiple,
           "Pad the vocabulary to a multiple of N x tp (default: the stack's)");
  addCount(app, "--top", &options->topK, "Plans to show (default: 5)");
  app.add_flag("--json", options->json, "Print JSON instead of a table");
  app.add_flag("--explain", options->explain,
               "Say also what the step waits for, what keeps it from being faster");
  addPath(app, "-o,--output", &options->output, "FILE",
          "Write the plan here; with --predict the rows, with --profile JSON");
  addReport(app, &options->report);
  addPath(app, "--trace", &options->trace, "FILE", "Write the simulated step here, for Perfetto");
  addCount(app, "--gpus", &options->pins.gpus, "The most devices to use (default: the cluster's)")
      ->group(kDegreesGroup);
  addPins(app, &options->pins);
  app.add_option("--headroom", options->headroom,
                 "Memory that every device keeps free: '7%' or '5 GiB'")
      ->type_name("SHARE|BYTES")
      ->group(kLimitsGroup);
  addCheck(app, options->check);
  addPredict(app, &options->predict);
  addPartition(app, &options->partition);
  return [options] { return runPlan(*options); };
}

}  // namespace

const Command kPlanCommand = {
    "plan", "Find the fastest plan that fits in memory, and say why",
    "trireme plan --model gpt.yaml --cluster dgx.yaml --gpus 64 --batch "
    "512 --seq 2048 -o plan.yaml\n"
    "  trireme plan --profile vgg16.txt --gpus 16 --bandwidth '1.25 GB/s'",
    addPlan};

}  // namespace trireme::cli
