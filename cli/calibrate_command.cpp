// trireme calibrate: measures this machine, or reads measurements of another, into a cluster file.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "cli/calibrate/gpu_cluster.h"
#include "cli/calibrate/measure_cluster.h"
#include "cli/calibrate/read_measurements.h"
#include "cli/calibrate/report.h"
#include "cli/calibrate/these_gpus.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/html_report/html_report.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "cost_models/nccl_tests.h"
#include "ir/base/format.h"
#include "ir/spec/cluster_names.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "ir/spec/suggestion.h"
#include "runtime/measure/measured_ranks.h"

namespace trireme::cli {
namespace {

struct CalibrateOptions {
  std::optional<int64_t> ranks;
  std::optional<spec::Precision> precision;
  std::string name, output, report, cluster, tier, saveMeasurements, gpuMeasurements;
  std::vector<std::string> ncclTests;
  bool gpu = false, json = false;
};

constexpr int64_t kMaxRanks = 1024;

// The file goes to -o or else, unless there is JSON to print, to stdout.
Status writeCluster(const CalibrateOptions& options, const spec::ClusterSpec& cluster,
                    const nlohmann::json& json, const std::string& table) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::printCluster(cluster));
  if (!options.output.empty()) TRIREME_RETURN_IF_ERROR(writeFile(options.output, text));
  TRIREME_RETURN_IF_ERROR(
      writeReport(options.report, {"calibrate", cluster.name, "", table}, json));
  if (options.json)
    fmt::print("{}\n", jsonText(json));
  else if (options.output.empty())
    fmt::print("{}", text);
  else
    fmt::print("{}{:<14}{}\n", table, "written to", options.output);
  return {};
}

Result<int> writeMeasured(const CalibrateOptions& options, const MeasuredCluster& measured) {
  TRIREME_RETURN_IF_ERROR(
      writeCluster(options, measured.cluster, toJson(measured), toTable(measured)));
  return kExitOk;
}

Result<int> runMeasurement(const CalibrateOptions& options) {
  MeasureOptions measure;
  measure.numRanks =
      options.ranks.value_or(std::min<int64_t>(runtime::coresOfThisMachine(), kMaxRanks));
  if (measure.numRanks > kMaxRanks)
    return Error(invalidArgument(
        fmt::format("--ranks {}: must be at most {}", measure.numRanks, kMaxRanks)));
  measure.name = options.name.empty() ? "this-machine" : options.name;
  measure.source = measurementSource(measure.numRanks);
  if (options.precision) measure.types = {spec::computeDType(*options.precision)};
  Progress progress;
  measure.progress = [&](double done, const std::string& what) { progress.update(done, what); };
  TRIREME_ASSIGN_OR_RETURN(const MeasuredCluster measured, measureCluster(measure));
  progress.clear();
  return writeMeasured(options, measured);
}

// From --gpu or --gpu-measurements: the one goes through what the other reads.
Result<int> describeGpus(const CalibrateOptions& options, const spec::ClusterSpec* base,
                         const runtime::GpuMeasurements& measurements) {
  GpuClusterOptions describe;
  describe.base = base;
  describe.name = !options.name.empty() ? options.name
                  : base != nullptr     ? base->name
                                        : "this-machine";
  const Result<MeasuredCluster> measured = clusterOf(measurements, describe);
  if (measured.has_value()) return writeMeasured(options, *measured);
  const std::string& file = options.gpuMeasurements;
  return Error(file.empty() ? measured.error() : measured.error().withContext(file));
}

Result<int> calibrateGpus(const CalibrateOptions& options) {
  std::optional<spec::ClusterSpec> loaded;
  if (!options.cluster.empty()) {
    TRIREME_ASSIGN_OR_RETURN(loaded, spec::loadCluster(options.cluster));
  }
  const spec::ClusterSpec* const base = loaded ? &*loaded : nullptr;
  if (!options.gpu) {
    TRIREME_ASSIGN_OR_RETURN(const runtime::GpuMeasurements measurements,
                             readMeasurements(options.gpuMeasurements));
    return describeGpus(options, base, measurements);
  }
  TRIREME_ASSIGN_OR_RETURN(
      const runtime::GpuMeasurements measurements,
      measureTheseGpus(options.ranks, [&](const runtime::GpuInfo& gpu, int64_t numGpus) {
        return checkBase(base, gpu, numGpus);
      }));
  if (!options.saveMeasurements.empty())
    TRIREME_RETURN_IF_ERROR(
        writeFile(options.saveMeasurements, runtime::printMeasurements(measurements)));
  return describeGpus(options, base, measurements);
}

// Lower-case letters and digits.
std::string plainName(std::string_view text) {
  std::string letters;
  for (const char c : spec::lowerCase(text))
    if (std::isalnum(static_cast<unsigned char>(c))) letters += c;
  return letters;
}

// Which links a GPU has, where its name says so: an H100 may be an SXM module, a PCIe or an NVL
// card.
std::string_view formOf(const std::string& plain) {
  for (const std::string_view form : {"sxm", "pcie", "nvl"})
    if (plain.find(form) != std::string::npos) return form;
  return "";
}

// Whoever names a cluster of A100 for a test on H100 has taken the wrong one, and so has who names
// SXM modules for a test on PCIe cards. A device that is not shipped may be anything.
Status checkGpu(const spec::ClusterSpec& cluster, const std::string& gpu) {
  const std::string& device = cluster.device.name;
  const std::string tested = plainName(gpu);
  const std::string_view form = formOf(plainName(device)), testedForm = formOf(tested);
  const bool isOtherForm = !form.empty() && !testedForm.empty() && form != testedForm;
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kDevice)) {
    spec::Sources sources;
    TRIREME_ASSIGN_OR_RETURN(const spec::DeviceSpec shipped, spec::shippedDevice(name, &sources));
    if (shipped.name != device || gpu.empty()) continue;
    const std::string model = plainName(name.substr(0, name.find('-')));
    if (tested.find(model) != std::string::npos && !isOtherForm) continue;
    return invalidArgument(fmt::format(
        "cluster '{}' has {} and the test ran on {}: name a cluster of these GPUs, or a file with "
        "a device of your own",
        cluster.name, device, spec::quoteForMessage(gpu)));
  }
  return {};
}

// The tier named by --tier or else the innermost that holds the test's ranks, and its hosts.
Result<size_t> tierOf(const CalibrateOptions& options, const spec::ClusterSpec& cluster,
                      const cost::NcclSweep& sweep) {
  std::vector<std::string> names;
  const auto holdsHosts = [&](size_t tier) {
    const bool isLast = tier + 1 == cluster.tiers.size();
    return sweep.numHosts() == 1 || isLast ||
           cluster.tiers[tier].devices > cluster.devicesPerHost();
  };
  for (size_t tier = 0; tier < cluster.tiers.size(); ++tier) {
    names.push_back(cluster.tiers[tier].name);
    const bool isNamed = options.tier == names.back();
    if (isNamed && tier > 0 && sweep.ranksOnHosts.size() == 1 &&
        cluster.tiers[tier - 1].devices >= std::max(sweep.numRanks, cluster.devicesPerHost()))
      return Error(
          invalidArgument(fmt::format("--tier {} joins hosts, and the test ran on one; nearest: {}",
                                      options.tier, cluster.tiers[tier - 1].name)));
    if (isNamed && !holdsHosts(tier))
      return Error(
          invalidArgument(fmt::format("--tier {} is within a host, and the test ran on {} hosts",
                                      options.tier, sweep.numHosts())));
    if (isNamed ||
        (options.tier.empty() && cluster.holdsGroup(tier, sweep.numRanks) && holdsHosts(tier)))
      return tier;
  }
  if (!options.tier.empty())
    return Error(
        invalidArgument(fmt::format("--tier {}: cluster '{}' has no such tier{}", options.tier,
                                    cluster.name, spec::suggestion(options.tier, names))));
  return Error(invalidArgument(
      fmt::format("the test ran on {} ranks of {} host{}, cluster '{}' has {} devices; set "
                  "'scalable: true' in its file if it may have any number",
                  sweep.numRanks, sweep.numHosts(), sweep.numHosts() == 1 ? "" : "s", cluster.name,
                  cluster.numDevices)));
}

// What groups go by of which there is no curve, and messages. It is that of each tier's largest
// group; of an all-reduce, which switches may do in another way than rings, if nothing else was
// measured of that.
class Efficiencies {
 public:
  void add(const spec::ClusterSpec& cluster, size_t tier, const cost::NcclSweep& sweep,
           const std::string& place) {
    const Result<double> efficiency = cost::efficiencyOf(cluster, tier, sweep);
    if (!efficiency) {
      whyNot_[tier] = fmt::format("{} among {}: {}", spec::nameOf(spec::kCollectives, sweep.kind),
                                  sweep.numRanks, efficiency.error().message());
      return;
    }
    const std::pair worth(sweep.numRanks, sweep.kind != spec::CollectiveKind::kAllReduce);
    const auto [known, isNew] = best_.try_emplace(tier);
    if (!isNew && known->second.worth >= worth) return;
    known->second = {worth, roundedTo4Digits(*efficiency),
                     fmt::format("nccl-tests, {}: {} of {} among {}", place,
                                 spec::nameOf(spec::kCollectives, sweep.kind),
                                 formatBytes(sweep.points.back().bytes), sweep.numRanks)};
  }
  // With a line for the table of each that changes.
  std::string put(spec::ClusterSpec& cluster) const {
    std::string lines;
    for (const auto& [tier, best] : best_) {
      double& efficiency = cluster.tiers[tier].efficiency;
      lines += fmt::format(
          "{:<14}tier {}: {:.4g} of its line rate in groups without a curve "
          "and messages (was {:.4g})\n",
          "efficiency", cluster.tiers[tier].name, best.efficiency, efficiency);
      efficiency = best.efficiency;
      cluster.sources[fmt::format("tiers[{}].efficiency", tier)] = best.source;
    }
    return lines;
  }
  // Of each tier that was measured and keeps its efficiency.
  std::vector<std::string> notes(const spec::ClusterSpec& cluster) const {
    std::vector<std::string> notes;
    for (const auto& [tier, why] : whyNot_)
      if (!best_.contains(tier))
        notes.push_back(fmt::format(
            "tier {} keeps its efficiency of {:.4g}, by which groups without a curve and messages "
            "go: no test tells it ({})",
            cluster.tiers[tier].name, cluster.tiers[tier].efficiency, why));
    return notes;
  }

 private:
  struct Best {
    std::pair<int64_t, bool> worth;
    double efficiency = 0;
    std::string source;
  };
  std::map<size_t, Best> best_;
  std::map<size_t, std::string> whyNot_;  // of tiers that were measured
};

// What a reader of nccl-tests' output should know of one of them.
std::vector<std::string> notesOn(const cost::NcclSweep& sweep, const std::string& place) {
  std::vector<std::string> notes;
  const auto name = spec::nameOf(spec::kCollectives, sweep.kind);
  if (sweep.points.back().bytes < cost::kLargeMessage)
    notes.push_back(fmt::format(
        "{}: the table of {} among {} ends at {}, larger ones are extrapolated: nccl-tests "
        "measures more with -e 1G",
        place, name, sweep.numRanks, formatBytes(sweep.points.back().bytes)));
  if (sweep.kind == spec::CollectiveKind::kSend || sweep.kind == spec::CollectiveKind::kAllToAll)
    notes.push_back(fmt::format(
        "{}: the table of {} is kept, and no prediction goes by it: messages between stages go by "
        "bandwidth, efficiency and pair_bandwidth of the tier",
        place, name));
  return notes;
}

// Tier, collective, ranks, and ranks of a block: what a curve is found by.
using CurveKey = std::tuple<size_t, spec::CollectiveKind, int64_t, int64_t>;

Result<int> readTests(const CalibrateOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  if (!options.name.empty()) cluster.name = options.name;
  std::string table = fmt::format("{:<14}{}\n", "cluster", cluster.name);
  std::map<CurveKey, std::string> places;
  std::vector<std::string> notes;
  Efficiencies efficiencies;
  for (const std::string& path : options.ncclTests) {
    TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(path, cost::kMaxNcclBytes));
    TRIREME_ASSIGN_OR_RETURN(const std::vector<cost::NcclSweep> sweeps,
                             cost::parseNcclTests(text, path));
    for (const cost::NcclSweep& sweep : sweeps) {
      const std::string place = fmt::format("{}:{}", path, sweep.line);
      if (const Status status = checkGpu(cluster, sweep.gpu); !status.ok())
        return Error(status.withContext(place));
      const Result<size_t> tier = tierOf(options, cluster, sweep);
      if (!tier.has_value()) return Error(tier.error().withContext(place));
      if (const Status status = cost::checkBandwidth(cluster, *tier, sweep); !status.ok())
        return Error(status.withContext(place));
      const Status added =
          cost::addSweep(cluster, *tier, sweep, fmt::format("nccl-tests, {}", place));
      if (!added.ok()) return Error(added.withContext(place));
      efficiencies.add(cluster, *tier, sweep, place);
      for (std::string& note : notesOn(sweep, place)) notes.push_back(std::move(note));
      const int64_t perBlock = cost::perBlockOf(cluster, *tier, sweep);
      const auto [first, isNew] =
          places.try_emplace({*tier, sweep.kind, sweep.numRanks, perBlock}, place);
      if (!isNew)
        return Error(invalidArgument(
            fmt::format("{}: {} among {} in tier {} is already that of {}: give one of the two",
                        place, spec::nameOf(spec::kCollectives, sweep.kind), sweep.numRanks,
                        cluster.tiers[*tier].name, first->second)));
      table += fmt::format("{:<14}{} among {}{}, {} sizes, up to {}: tier {}\n", "read",
                           spec::nameOf(spec::kCollectives, sweep.kind), sweep.numRanks,
                           perBlock > 0 ? fmt::format(" ({} on each host)", perBlock) : "",
                           sweep.points.size(), bandwidthText(sweep.points.back().busBandwidth),
                           cluster.tiers[*tier].name);
    }
  }
  table += efficiencies.put(cluster);
  for (std::string& note : efficiencies.notes(cluster)) notes.push_back(std::move(note));
  for (const std::string& note : notes) tell("note: {}\n", note);
  const nlohmann::json json = {{"cluster", cluster.name}, {"curves", curvesJson(cluster)}};
  TRIREME_RETURN_IF_ERROR(writeCluster(options, cluster, json, table));
  return kExitOk;
}

Result<int> runCalibrate(const CalibrateOptions& options) {
  std::vector<NamedPath> inputs = {{"--cluster", options.cluster},
                                   {"--gpu-measurements", options.gpuMeasurements}};
  for (const std::string& path : options.ncclTests) {
    inputs.push_back({"--nccl-tests", path});
    if (!spec::isValidUtf8(path))  // it is the source of what is read
      return Error(invalidArgument(fmt::format(
          "--nccl-tests {}: the file's name is no UTF-8: rename it", spec::quoteForMessage(path))));
  }
  TRIREME_RETURN_IF_ERROR(
      checkOutputs(inputs, {{"-o", options.output},
                            {"--report", options.report},
                            {"--save-measurements", options.saveMeasurements}}));
  for (const std::string& path : {options.output, options.report, options.saveMeasurements})
    TRIREME_RETURN_IF_ERROR(checkWritable(path));
  if (options.gpu || !options.gpuMeasurements.empty()) return calibrateGpus(options);
  return options.ncclTests.empty() ? runMeasurement(options) : readTests(options);
}

Action addCalibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::Option* gpu =
      app.add_flag("--gpu", options->gpu, "Measure this machine's NVIDIA GPUs, not its processor");
  CLI::Option* ranks =
      addCount(app, "--ranks", &options->ranks,
               "Ranks to measure, all at once (default: one per core, or per GPU)");
  CLI::Option* precision =
      addChoice(app, "--precision", &options->precision, spec::precisionName,
                spec::Precision::kFp16, "Measure only what it needs (default: fp64, fp32, bf16)");
  precision->excludes(gpu);
  addPath(app, "--name", &options->name, "NAME",
          "Name of the cluster (default: this-machine, or that of --cluster)");
  CLI::Option* cluster =
      addPath(app, "--cluster", &options->cluster, "NAME|FILE",
              "The cluster that GPUs or nccl-tests complete: the rest is as there");
  addPath(app, "--save-measurements", &options->saveMeasurements, "FILE",
          "Write what was measured here as well (JSON), for --gpu-measurements")
      ->needs(gpu);
  const std::string group = "Measurements of another machine";
  CLI::Option* measurements =
      addPath(app, "--gpu-measurements", &options->gpuMeasurements, "FILE",
              "Read what --save-measurements wrote there, in any build of trireme")
          ->group(group)
          ->excludes(ranks)
          ->excludes(precision)
          ->excludes(gpu);
  CLI::Option* tests =
      addPaths(app, "--nccl-tests", &options->ncclTests, "FILE",
               "Read the output of nccl-tests instead (/dev/stdin: what is piped in)");
  tests->group(group)->needs(cluster);
  for (CLI::Option* other : {ranks, precision, gpu, measurements}) tests->excludes(other);
  app.parse_complete_callback([options] {
    if (!options->cluster.empty() && options->ncclTests.empty() && !options->gpu &&
        options->gpuMeasurements.empty())
      refuseFlag("--cluster",
                 "is completed by --gpu, --gpu-measurements or --nccl-tests: none is there");
  });
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
    "calibrate", "Measure this machine, or read measurements, into a cluster file",
    "trireme calibrate --ranks 2 -o two.yaml\n"
    "  trireme calibrate --gpu --cluster dgx-h100 -o measured.yaml\n"
    "  trireme calibrate --gpu-measurements gpus.json -o measured.yaml\n"
    "  trireme calibrate --nccl-tests all_reduce.txt --cluster dgx-a100 -o measured.yaml",
    addCalibrate};

}  // namespace trireme::cli
