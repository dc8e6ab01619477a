// trireme calibrate: measures this machine, or reads measurements of another, into a cluster file.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/calibrate/measure_cluster.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/html_report/html_report.h"
#include "cli/output/progress.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "cost_models/nccl_tests.h"
#include "ir/base/format.h"
#include "ir/spec/cluster_names.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"

namespace trireme::cli {
namespace {

struct CalibrateOptions {
  std::optional<int64_t> ranks;
  std::string name, output, report, cluster, tier;
  std::vector<std::string> ncclTests;
  bool json = false;
};

constexpr int64_t kMaxRanks = 1024;

std::string rateText(FlopsPerSecond rate) {
  return fmt::format("{:.1f} GFLOP/s", rate.count() * 1e-9);
}
std::string bandwidthText(BytesPerSecond rate) {
  return fmt::format("{:.1f} GB/s", rate.count() * 1e-9);
}

nlohmann::json curvesJson(const spec::ClusterSpec& cluster) {
  nlohmann::json curves = nlohmann::json::array();
  for (const spec::LinkTier& tier : cluster.tiers)
    for (const spec::CollectiveCurve& curve : tier.curves) {
      nlohmann::json points = nlohmann::json::array();
      for (const spec::CollectivePoint& point : curve.points)
        points.push_back({point.bytes.count(), point.busBandwidth.count()});
      curves.push_back({{"tier", tier.name},
                        {"collective", spec::nameOf(spec::kCollectives, curve.kind)},
                        {"group", curve.group},
                        {"bytesAndBusBandwidth", std::move(points)}});
    }
  return curves;
}

nlohmann::json toJson(const MeasuredCluster& measured) {
  const spec::DeviceSpec& device = measured.cluster.device;
  nlohmann::json json = {{"cluster", measured.cluster.name},
                         {"ranks", measured.cluster.numDevices},
                         {"memoryBytes", device.memory.count()},
                         {"memoryBandwidth", device.memoryBandwidth.count()},
                         {"launchSeconds", device.launchOverhead.count()},
                         {"curves", curvesJson(measured.cluster)}};
  for (const spec::PeakRate& peak : device.matmul)
    json["matmulFlopsPerSecond"][std::string(mathFormatName(peak.format))] = peak.rate.count();
  for (size_t i = 0; i < measured.fit.kernels.size(); ++i) {
    const spec::KernelTiming& kernel = measured.fit.kernels[i];
    nlohmann::json entry = {{"kernel", kernel.kernel},
                            {"dtype", dtypeName(kernel.dtype)},
                            {"sizes", measured.fit.numTimed[i]},
                            {"meanError", measured.fit.meanErrors[i]}};
    for (const spec::EnumName<spec::KernelUnit>& unit : spec::kKernelUnits)
      if (const Seconds per = kernel.per[static_cast<size_t>(unit.value)]; per.count() > 0)
        entry["secondsPer"][std::string(unit.name)] = per.count();
    json["kernels"].push_back(std::move(entry));
    for (const cost::FittedTime& time : measured.fit.times[i])
      json["timedKernels"].push_back({{"kernel", kernel.kernel},
                                      {"dtype", dtypeName(kernel.dtype)},
                                      {"measuredSeconds", time.measured.count()},
                                      {"fittedSeconds", time.fitted.count()}});
  }
  return json;
}

// Of the largest payload, among the most ranks.
std::string allReduceText(const spec::ClusterSpec& cluster) {
  std::string text = "none: there is one rank";
  for (const spec::CollectiveCurve& curve : cluster.tiers.back().curves)
    if (curve.kind == spec::CollectiveKind::kAllReduce)
      text = fmt::format("{} bus bandwidth among {} ranks at {}",
                         bandwidthText(curve.points.back().busBandwidth), curve.group,
                         formatBytes(curve.points.back().bytes));
  return text;
}

std::string toTable(const MeasuredCluster& measured) {
  const spec::DeviceSpec& device = measured.cluster.device;
  std::string text = fmt::format("{:<14}{}, {} of this machine's ranks at once\n", "cluster",
                                 measured.cluster.name, measured.cluster.numDevices);
  for (const spec::PeakRate& peak : device.matmul)
    text += fmt::format("{:<14}{}, {} per rank\n", "products", mathFormatName(peak.format),
                        rateText(peak.rate));
  text += fmt::format("{:<14}{} and {} per rank\n", "memory", formatBytes(device.memory),
                      bandwidthText(device.memoryBandwidth));
  text += fmt::format("{:<14}{}\n", "all-reduce", allReduceText(measured.cluster));
  double error = 0;
  int timed = 0;
  for (size_t i = 0; i < measured.fit.kernels.size(); ++i) {
    error += measured.fit.meanErrors[i] * measured.fit.numTimed[i];
    timed += measured.fit.numTimed[i];
  }
  text += fmt::format("{:<14}{} fitted to {} times, mean error {:.1f} %\n", "kernels",
                      measured.fit.kernels.size(), timed, error / timed * 100);
  return text;
}

// The file goes to -o or else, unless there is JSON to print, to stdout.
Status writeCluster(const CalibrateOptions& options, const spec::ClusterSpec& cluster,
                    const nlohmann::json& json, const std::string& table) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::printCluster(cluster));
  if (!options.output.empty()) TRIREME_RETURN_IF_ERROR(writeFile(options.output, text));
  TRIREME_RETURN_IF_ERROR(
      writeReport(options.report, {"calibrate", cluster.name, "", table}, json));
  if (options.json)
    fmt::print("{}\n", json.dump(2));
  else if (options.output.empty())
    fmt::print("{}", text);
  else
    fmt::print("{}{:<14}{}\n", table, "written to", options.output);
  return {};
}

Result<int> runMeasurement(const CalibrateOptions& options) {
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  MeasureOptions measure;
  measure.numRanks = options.ranks.value_or(std::min(cores, kMaxRanks));
  if (measure.numRanks > kMaxRanks)
    return Error(invalidArgument(
        fmt::format("--ranks {}: must be at most {}", measure.numRanks, kMaxRanks)));
  measure.name = options.name.empty() ? "this-machine" : options.name;
  measure.source = measurementSource(measure.numRanks);
  Progress progress;
  measure.progress = [&](double done, const std::string& what) { progress.update(done, what); };
  TRIREME_ASSIGN_OR_RETURN(const MeasuredCluster measured, measureCluster(measure));
  progress.clear();
  TRIREME_RETURN_IF_ERROR(
      writeCluster(options, measured.cluster, toJson(measured), toTable(measured)));
  return kExitOk;
}

// The tier named by --tier or else the innermost that holds the test's ranks.
Result<size_t> tierOf(const CalibrateOptions& options, const spec::ClusterSpec& cluster,
                      int64_t numRanks) {
  std::vector<std::string> names;
  for (size_t tier = 0; tier < cluster.tiers.size(); ++tier) {
    names.push_back(cluster.tiers[tier].name);
    if (options.tier.empty() ? cluster.holdsGroup(tier, numRanks) : options.tier == names.back())
      return tier;
  }
  if (!options.tier.empty())
    return Error(
        invalidArgument(fmt::format("--tier {}: cluster '{}' has no such tier{}", options.tier,
                                    cluster.name, spec::suggestion(options.tier, names))));
  return Error(invalidArgument(
      fmt::format("the test ran on {} ranks, cluster '{}' has {} devices; set 'scalable: true' in "
                  "its file if it may have any number",
                  numRanks, cluster.name, cluster.numDevices)));
}

Result<int> readTests(const CalibrateOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  if (!options.name.empty()) cluster.name = options.name;
  std::string table = fmt::format("{:<14}{}\n", "cluster", cluster.name);
  for (const std::string& path : options.ncclTests) {
    TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(path, cost::kMaxNcclBytes));
    TRIREME_ASSIGN_OR_RETURN(const std::vector<cost::NcclSweep> sweeps,
                             cost::parseNcclTests(text, path));
    for (const cost::NcclSweep& sweep : sweeps) {
      const std::string place = fmt::format("{}:{}", path, sweep.line);
      const Result<size_t> tier = tierOf(options, cluster, sweep.numRanks);
      if (!tier.has_value()) return Error(tier.error().withContext(place));
      const Status added =
          cost::addSweep(cluster, *tier, sweep, fmt::format("nccl-tests, {}", place));
      if (!added.ok()) return Error(added.withContext(place));
      table += fmt::format("{:<14}{} among {}, {} sizes, up to {}: tier {}\n", "read",
                           spec::nameOf(spec::kCollectives, sweep.kind), sweep.numRanks,
                           sweep.points.size(), bandwidthText(sweep.points.back().busBandwidth),
                           cluster.tiers[*tier].name);
    }
  }
  const nlohmann::json json = {{"cluster", cluster.name}, {"curves", curvesJson(cluster)}};
  TRIREME_RETURN_IF_ERROR(writeCluster(options, cluster, json, table));
  return kExitOk;
}

Result<int> runCalibrate(const CalibrateOptions& options) {
  std::vector<NamedPath> inputs = {{"--cluster", options.cluster}};
  for (const std::string& path : options.ncclTests) inputs.push_back({"--nccl-tests", path});
  TRIREME_RETURN_IF_ERROR(
      checkOutputs(inputs, {{"-o", options.output}, {"--report", options.report}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.output));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.report));
  return options.ncclTests.empty() ? runMeasurement(options) : readTests(options);
}

Action addCalibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::Option* ranks = addCount(app, "--ranks", &options->ranks,
                                "Ranks to measure, all at once (default: one per core)");
  addPath(app, "--name", &options->name, "NAME",
          "Name of the cluster (default: this-machine, or that of --cluster)");
  const std::string group = "Measurements of another machine";
  CLI::Option* tests =
      addPaths(app, "--nccl-tests", &options->ncclTests, "FILE",
               "Read the output of nccl-tests instead (/dev/stdin: what is piped in)");
  CLI::Option* cluster =
      addPath(app, "--cluster", &options->cluster, "NAME|FILE", "The cluster that it completes");
  tests->group(group)->needs(cluster)->excludes(ranks);
  cluster->group(group)->needs(tests);
  addPath(app, "--tier", &options->tier, "TIER",
          "Tier that it measured (default: the innermost that holds the ranks)")
      ->group(group)
      ->needs(tests);
  const std::string output = "Output";
  addPath(app, "-o,--output", &options->output, "FILE",
          "Write the cluster file here (default: to stdout)")
      ->group(output);
  app.add_flag("--json", options->json, "Print the measurements as JSON")->group(output);
  addReport(app, &options->report)->group(output);
  return [options] { return runCalibrate(*options); };
}

}  // namespace

const Command kCalibrateCommand = {
    "calibrate", "Measure this machine, or read nccl-tests, into a cluster file",
    "trireme calibrate --ranks 2 -o two.yaml\n"
    "  trireme calibrate --nccl-tests all_reduce.txt --cluster dgx-a100 -o measured.yaml",
    addCalibrate};

}  // namespace trireme::cli
