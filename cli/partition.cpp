#include "cli/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "planner/partition/report.h"

namespace trireme::cli {
namespace {

using planner::NetworkLevel;
using planner::PipedreamForm;
using planner::PipedreamPartition;
using planner::PipedreamProblem;
using planner::PiperPartition;
using planner::PiperProblem;

constexpr std::string_view kMethodNames[] = {"sosp19", "arxiv18", "released", "piper"};
std::string_view methodName(PartitionMethod method) {
  return kMethodNames[static_cast<size_t>(method)];
}

// "16 GB/s,1.25 GB/s".
std::vector<BytesPerSecond> parseBandwidths(const std::string& flag, const std::string& text) {
  std::vector<BytesPerSecond> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const Result<BytesPerSecond> value = spec::parseBytesPerSecond(part);
    if (!value.has_value())
      refuseFlag(flag, fmt::format("'{}': {}", part, value.error().message()));
    if (!(value->count() > 0)) refuseFlag(flag, fmt::format("'{}': must be above 0", part));
    result.push_back(*value);
    begin = end + 1;
  }
  return result;
}

void parseMemory(const std::string& flag, const std::string& text, PartitionOptions* options) {
  options->noMemoryLimit = text == "none";
  options->memory.reset();
  if (options->noMemoryLimit) return;
  const Result<Bytes> value = spec::parseBytes(text);
  if (!value.has_value())
    refuseFlag(flag, fmt::format("'{}': {}; or 'none'", text, value.error().message()));
  if (!(value->count() > 0)) refuseFlag(flag, fmt::format("'{}': must be above 0", text));
  options->memory = *value;
}

// What there is to compute on, wherever it comes from: flags before the cluster before the profile.
struct Machine {
  int64_t devices = 0;
  std::vector<NetworkLevel> levels;
  BytesPerSecond flat;          // what a device reaches when all of them communicate
  std::optional<Bytes> memory;  // of a device
};

Result<Machine> fromCluster(const PartitionInputs& inputs) {
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(inputs.cluster));
  TRIREME_RETURN_IF_ERROR(growCluster(inputs.gpus, inputs.cluster, cluster));
  if (inputs.gpus && *inputs.gpus < cluster.numDevices) {
    Result<spec::ClusterSpec> part = spec::withNumDevices(std::move(cluster), *inputs.gpus);
    if (!part.has_value()) return Error(part.error().withContext("--gpus"));
    cluster = *std::move(part);
  }
  Machine machine;
  machine.devices = cluster.numDevices;
  machine.memory = cluster.device.memory;
  int64_t inner = 1;
  for (const spec::LinkTier& tier : cluster.tiers) {
    if (tier.devices == inner) continue;  // joins nothing
    machine.levels.push_back({tier.devices / inner, BytesPerSecond(tier.sustained().count() *
                                                                   static_cast<double>(inner))});
    machine.flat = tier.sustained();
    inner = tier.devices;
  }
  if (machine.levels.empty()) {  // one device
    machine.flat = cluster.tiers.back().sustained();
    machine.levels.push_back({1, machine.flat});
  }
  return machine;
}

Result<Machine> fromFlags(const PartitionOptions& options, const PartitionInputs& inputs,
                          const spec::ProfileSpec& profile) {
  Machine machine;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t product = std::accumulate(
      options.levels.begin(), options.levels.end(), int64_t{1},
      [](int64_t n, int64_t level) { return n > kMost / level ? kMost : n * level; });
  std::optional<int64_t> devices = inputs.gpus;
  if (!options.levels.empty()) {
    if (devices && *devices != product)
      return Error(
          invalidArgument(fmt::format("--levels make {} devices, --gpus {}; give one of "
                                      "them, or the same number",
                                      product, *devices)));
    devices = product;
  }
  if (!devices) devices = profile.devices;
  if (!devices)
    return Error(
        invalidArgument("the number of devices is missing: give --gpus, --levels or "
                        "--cluster, or 'devices' in the profile"));
  machine.devices = *devices;
  std::vector<BytesPerSecond> bandwidths = options.bandwidths;
  if (bandwidths.empty() && profile.bandwidth) bandwidths = {*profile.bandwidth};
  if (bandwidths.empty())
    return Error(
        invalidArgument("the bandwidth is missing: give --bandwidth or --cluster, or "
                        "'bandwidth' in the profile"));
  const std::vector<int64_t> levels =
      options.levels.empty() ? std::vector<int64_t>{*devices} : options.levels;
  if (bandwidths.size() != levels.size())
    return Error(invalidArgument(fmt::format(
        "there {} {} network level{} and {} bandwidth{}; give --bandwidth one for each, innermost "
        "first",
        levels.size() == 1 ? "is" : "are", levels.size(), levels.size() == 1 ? "" : "s",
        bandwidths.size(), bandwidths.size() == 1 ? "" : "s")));
  for (size_t i = 0; i < levels.size(); ++i) machine.levels.push_back({levels[i], bandwidths[i]});
  machine.flat = bandwidths.back();
  machine.memory = profile.memory;
  return machine;
}

Result<Machine> machineOf(const PartitionOptions& options, const PartitionInputs& inputs,
                          const spec::ProfileSpec& profile) {
  if (inputs.cluster.empty()) return fromFlags(options, inputs, profile);
  if (!options.levels.empty() || !options.bandwidths.empty())
    return Error(
        invalidArgument(fmt::format("--cluster and {} both say what the network is; give "
                                    "one of them",
                                    options.levels.empty() ? "--bandwidth" : "--levels")));
  return fromCluster(inputs);
}

Status refuseFlagsOfOthers(const PartitionOptions& options, PartitionMethod method) {
  const bool isPiper = method == PartitionMethod::kPiper;
  const auto refuse = [&](const char* flag, const char* whose) {
    return invalidArgument(fmt::format("{} does not go with --method {}; it belongs to {}", flag,
                                       methodName(method), whose));
  };
  if (options.microbatches && !isPiper) return refuse("--microbatches", "piper");
  if (options.transfers && method != PartitionMethod::kReleased)
    return refuse("--transfers", "released");
  if (options.idle && method != PartitionMethod::kReleased) return refuse("--idle", "released");
  if (options.memory && (method == PartitionMethod::kSosp19 || method == PartitionMethod::kArxiv18))
    return refuse("--memory", "released and piper");
  if (options.levels.size() > 1 && (isPiper || method == PartitionMethod::kArxiv18))
    return refuse("several --levels", "sosp19 and released");
  return {};
}

// What a device may hold at most, if anything limits it.
std::optional<Bytes> memoryOf(const PartitionOptions& options, const Machine& machine) {
  if (options.noMemoryLimit) return std::nullopt;
  return options.memory ? options.memory : machine.memory;
}

// Methods that do not look at memory may give plans that do not fit.
void noteMemory(const PipedreamProblem& problem, const PipedreamPartition& partition,
                const std::optional<Bytes>& memory) {
  if (!memory) return;
  const std::vector<planner::WorkerStage> stages = planner::workerStages(problem, partition);
  for (size_t s = 0; s < stages.size(); ++s)
    if (stages[s].memory > memory)
      tell("note: a worker of stage {} holds {}, a device has {}; {}\n", s,
           formatBytes(*stages[s].memory), formatBytes(*memory),
           problem.memory ? "the published rule does not count all of it"
                          : "this method does not look at memory, piper does");
}

template <typename Problem, typename Partition>
Result<int> answer(const Problem& problem, const Partition& partition,
                   const PartitionInputs& inputs) {
  if (const Status status = problem.verify(partition); !status.ok())
    return Error(internalError(status.message()));
  const std::string json = jsonText(planner::toJson(problem, partition)) + "\n";
  if (!inputs.output.empty()) TRIREME_RETURN_IF_ERROR(writeFile(inputs.output, json));
  fmt::print("{}", inputs.json ? json : planner::toTable(problem, partition));
  if (!inputs.json && !inputs.output.empty()) fmt::print("{:<14}{}\n", "written to", inputs.output);
  return kExitOk;
}

Result<int> runPiper(const PartitionOptions& options, const PartitionInputs& inputs,
                     const Machine& machine, spec::ProfileSpec profile) {
  PiperProblem problem;
  problem.devices = machine.devices;
  problem.bandwidth = machine.flat;
  problem.memory = memoryOf(options, machine);
  const std::optional<int64_t> microbatches =
      options.microbatches ? options.microbatches : profile.microbatches;
  if (!microbatches)
    return Error(
        invalidArgument("the number of microbatches per batch is missing: give "
                        "--microbatches, or 'microbatches' in the profile"));
  problem.microbatches = *microbatches;
  problem.profile = std::move(profile);
  Progress progress;
  const auto show = [&](double done) {
    progress.update(done, fmt::format("partitioning for {} devices", problem.devices));
  };
  const Result<PiperPartition> partition = planner::partitionPiper(problem, show);
  progress.clear();
  if (!partition.has_value()) return Error(partition.error().withContext(options.profile));
  return answer(problem, *partition, inputs);
}

Result<int> runPipedream(const PartitionOptions& options, const PartitionInputs& inputs,
                         const Machine& machine, spec::ProfileSpec profile) {
  const PartitionMethod method = options.method.value_or(PartitionMethod::kSosp19);
  PipedreamProblem problem;
  problem.form = method == PartitionMethod::kArxiv18    ? PipedreamForm::kFlat
                 : method == PartitionMethod::kReleased ? PipedreamForm::kReleased
                                                        : PipedreamForm::kHierarchical;
  problem.levels = problem.form == PipedreamForm::kFlat
                       ? std::vector<NetworkLevel>{{machine.devices, machine.flat}}
                       : machine.levels;
  problem.profile = std::move(profile);
  problem.countTransfers = options.transfers.value_or(true);
  problem.mayLeaveIdle = options.idle.value_or(false);
  if (problem.form == PipedreamForm::kReleased) problem.memory = memoryOf(options, machine);
  Progress progress;
  const auto show = [&](double done) {
    progress.update(done, fmt::format("partitioning for {} workers", machine.devices));
  };
  const Result<PipedreamPartition> partition = planner::partitionPipedream(problem, show);
  progress.clear();
  if (!partition.has_value()) return Error(partition.error().withContext(options.profile));
  noteMemory(problem, *partition, memoryOf(options, machine));
  return answer(problem, *partition, inputs);
}

}  // namespace

void addPartition(CLI::App& app, PartitionOptions* options) {
  const std::string group = "Partition of a measured model";
  const std::vector<CLI::Option*> others = app.get_options();
  CLI::Option* profile = addPath(app, "--profile", &options->profile, "FILE",
                                 "Cut this profile into replicated stages, in place of a search");
  profile->group(group);
  for (CLI::Option* other : others) {
    const std::string name = other->get_name();
    if (name != "--help" && name != "--gpus" && name != "--cluster" && name != "--json" &&
        name != "--output")
      profile->excludes(other);
  }
  profile->each([others](const std::string&) {
    for (CLI::Option* other : others) other->required(false);
  });
  const auto add = [&](CLI::Option* option) { option->needs(profile)->group(group); };
  add(addChoice(app, "--method", &options->method, methodName, PartitionMethod::kPiper,
                "PipeDream's recurrence (default: sosp19), or Piper's problem"));
  add(addCounts(app, "--levels", &options->levels,
                "Components of every network level, innermost first (default: --gpus)"));
  add(app.add_option_function<std::string>(
             "--bandwidth",
             [options](const std::string& text) {
               options->bandwidths = parseBandwidths("--bandwidth", text);
             },
             "Of a component, for every level: '16 GB/s,1.25 GB/s'")
          ->type_name("B,..."));
  add(app.add_option_function<std::string>(
             "--memory",
             [options](const std::string& text) { parseMemory("--memory", text, options); },
             "Per device: '8 GiB', or none (default: the cluster's or profile's)")
          ->type_name("B"));
  add(addCount(app, "--microbatches", &options->microbatches,
               "Per update of the weights, for piper"));
  add(addSwitch(app, "--transfers", &options->transfers,
                "Count activations sent, for released (default: on)"));
  add(addSwitch(app, "--idle", &options->idle,
                "May leave workers idle, for released (default: off)"));
}

Result<int> runPartition(const PartitionOptions& options, const PartitionInputs& inputs) {
  TRIREME_RETURN_IF_ERROR(checkOutputs(
      {{"--profile", options.profile}, {"--cluster", inputs.cluster}}, {{"-o", inputs.output}}));
  TRIREME_RETURN_IF_ERROR(checkWritable(inputs.output));
  const PartitionMethod method = options.method.value_or(PartitionMethod::kSosp19);
  TRIREME_RETURN_IF_ERROR(refuseFlagsOfOthers(options, method));
  TRIREME_ASSIGN_OR_RETURN(spec::ProfileSpec profile, spec::loadProfile(options.profile));
  TRIREME_ASSIGN_OR_RETURN(const Machine machine, machineOf(options, inputs, profile));
  return method == PartitionMethod::kPiper
             ? runPiper(options, inputs, machine, std::move(profile))
             : runPipedream(options, inputs, machine, std::move(profile));
}

}  // namespace trireme::cli
