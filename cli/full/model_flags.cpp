#include "cli/run/model_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "cli/html_report/html_report.h"
#include "cli/inputs.h"
#include "cli/output/tell.h"
#include "cli/weights/hugging_face.h"
#include "cost_models/estimate.h"
#include "ir/plan/plan.h"
#include "ir/spec/load.h"
#include "ir/spec/print.h"
#include "planner/answer/timeline.h"

namespace trireme::cli {
namespace {

// Weights of equal shapes may be of another model: what config.json beside them says must agree,
// but for the name and the spread of an initial draw.
Status agreesWithConfig(const spec::ModelSpec& model, const std::string& weights) {
  namespace fs = std::filesystem;
  const fs::path path(weights);
  const fs::path config = (fs::is_directory(path) ? path : path.parent_path()) / "config.json";
  if (!fs::exists(config)) return {};
  TRIREME_ASSIGN_OR_RETURN(spec::ModelSpec theirs, spec::loadModel(config.string()));
  theirs.name = model.name;
  theirs.initStd = model.initStd;
  if (theirs == model) return {};
  const std::vector<spec::ModelDifference> differences = spec::differencesOf(theirs, model);
  return invalidArgument(fmt::format(
      "--init-from: {} is of another model: {}", config.string(),
      differences.empty() ? "it differs in a value that is not printed"
                          : fmt::format("{}, the bundle's has {}", differences.front().first,
                                        differences.front().second)));
}

}  // namespace

Status checkModelFlags(const ModelFlags&) { return {}; }

Status predict(const ModelFlags& flags, const program::Bundle& bundle,
               const std::string& bundleFolder, RunReport& report) {
  if (flags.cluster.empty()) return {};
  TRIREME_ASSIGN_OR_RETURN(const plan::Plan plan,
                           plan::parsePlan(bundle.planText, bundleFolder + "/plan.yaml"));
  planner::Query query;
  TRIREME_ASSIGN_OR_RETURN(query.model, spec::parseModel(bundle.modelText, "model.yaml"));
  TRIREME_ASSIGN_OR_RETURN(query.cluster, spec::loadCluster(flags.cluster));
  TRIREME_ASSIGN_OR_RETURN(query.stack, loadStackOrDefault(flags.stack));
  const bool isForGpus = program::isGpuArch(bundle.target.arch);
  if (flags.speaks && isForGpus != (query.cluster.device.kind == spec::DeviceKind::kCuda))
    tell("note: the bundle runs on {}, and the time is predicted for {}\n",
         isForGpus ? "GPUs" : "this machine's processor", query.cluster.name);
  query.training = plan.training;
  TRIREME_ASSIGN_OR_RETURN(const cost::Estimate estimate,
                           cost::estimate(query.model, plan, query.cluster, query.stack));
  report.predictedStep = estimate.step;
  if (flags.report.empty()) return {};
  TRIREME_ASSIGN_OR_RETURN(const planner::PlayedPlan played,
                           planner::playPlan(query, plan, {.tasks = true}));
  TRIREME_ASSIGN_OR_RETURN(const planner::Timeline timeline,
                           planner::timelineOf(query, plan, played));
  report.timelines["predicted"] = planner::toJson(timeline);
  return {};
}

Status initialiseFrom(const ModelFlags& flags, runtime::Session& session,
                      const std::string& modelText) {
  if (flags.initFrom.empty()) return {};
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::parseModel(modelText, "model.yaml"));
  TRIREME_RETURN_IF_ERROR(agreesWithConfig(model, flags.initFrom));
  TRIREME_ASSIGN_OR_RETURN(const runtime::ForeignWeights weights, huggingFaceWeights(model));
  TRIREME_RETURN_IF_ERROR(session.loadForeignWeights(weights, flags.initFrom));
  if (flags.speaks) tell("starting from the weights of {}\n", flags.initFrom);
  return {};
}

Status writeRunReport(const ModelFlags& flags, RunReport& report, const program::Program& program,
                      const std::vector<program::TraceEvent>& events) {
  if (flags.report.empty()) return {};
  if (!events.empty())
    report.timelines["measured"] = planner::toJson(planner::timelineOf(program, events));
  return writeReport(flags.report, {"run", report.model, "", longReport(report)},
                     jsonReport(report), report.timelines);
}

}  // namespace trireme::cli
