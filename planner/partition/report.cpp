#include "planner/partition/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/format.h"
#include "planner/partition/pipedream_costs.h"

namespace trireme::planner {
namespace {

std::string field(const std::string& name, const std::string& value) {
  return fmt::format("{:<14}{}\n", name, value);
}

std::string plural(size_t n, const std::string& noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string profileText(const spec::ProfileSpec& profile, size_t numDownSets) {
  return field(
      "profile",
      fmt::format("{}{}, {}, {} to cut it in two", profile.name.empty() ? "" : profile.name + ", ",
                  plural(profile.layers.size(), "layer"), plural(profile.edges.size(), "edge"),
                  plural(numDownSets, "way")));
}

const std::string& idOf(const spec::ProfileSpec& profile, int32_t layer) {
  return profile.layers[static_cast<size_t>(layer)].id;
}

// "node2 .. node31".
std::string rangeText(const spec::ProfileSpec& profile, const std::vector<int32_t>& layers) {
  const std::string& first = idOf(profile, layers.front());
  return layers.size() == 1 ? first : first + " .. " + idOf(profile, layers.back());
}

// "3 vanilla, 2 recompute".
std::string variantsText(const spec::ProfileSpec& profile, const PiperStage& stage) {
  std::vector<std::pair<std::string, size_t>> counts;
  for (size_t i = 0; i < stage.layers.size(); ++i) {
    const std::string& name = profile.layers[static_cast<size_t>(stage.layers[i])]
                                  .variants[static_cast<size_t>(stage.variants[i])]
                                  .name;
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == name; });
    if (found == counts.end())
      counts.emplace_back(name, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

std::string memoryText(const std::optional<Bytes>& memory) {
  return memory ? formatBytes(*memory) : "unknown";
}

std::string rateText(Seconds time) {
  return time.count() > 0 ? fmt::format("{} per microbatch, {:.6g} microbatches/s",
                                        formatSeconds(time), 1 / time.count())
                          : "none at all";
}

nlohmann::json idsJson(const spec::ProfileSpec& profile, const std::vector<int32_t>& layers) {
  nlohmann::json ids = nlohmann::json::array();
  for (const int32_t layer : layers) ids.push_back(idOf(profile, layer));
  return ids;
}

nlohmann::json stagesJson(const spec::ProfileSpec& profile,
                          const std::vector<PipedreamStage>& stages) {
  nlohmann::json json = nlohmann::json::array();
  for (const PipedreamStage& stage : stages) {
    nlohmann::json item = {{"layers", idsJson(profile, stage.layers)},
                           {"replicas", stage.replicas}};
    if (!stage.inner.empty()) item["stages"] = stagesJson(profile, stage.inner);
    json.push_back(std::move(item));
  }
  return json;
}

// "4 at 16 GB/s, then 4 at 1.25 GB/s".
std::string levelsText(const PipedreamProblem& problem) {
  std::string text;
  for (const NetworkLevel& level : problem.levels)
    text += fmt::format("{}{} at {:.6g} GB/s", text.empty() ? "" : ", then ", level.components,
                        level.bandwidth.count() / 1e9);
  return text;
}

}  // namespace

std::string toTable(const PipedreamProblem& problem, const PipedreamPartition& partition) {
  const spec::ProfileSpec& profile = problem.profile;
  std::string out = profileText(profile, partition.numDownSets);
  out += field("method", fmt::format("PipeDream, {}", pipedreamFormName(problem.form)));
  out += field("workers", levelsText(problem));
  if (problem.memory) out += field("memory", formatBytes(*problem.memory) + " per worker");
  out += field("stages", describe(partition.stages));
  out += field("time", rateText(partition.time));
  if (partition.time.count() > 0)
    out += field("compared", fmt::format("{:.3f} x data parallelism, {:.3f} x one worker",
                                         partition.dataParallelTime / partition.time,
                                         partition.oneWorkerTime / partition.time));
  out += field("certificate", "no partition is faster under this objective");
  out += fmt::format("  {:>5}{:>8}{:>9}{:>13}{:>14}  {}\n", "stage", "layers", "workers",
                     "computing", "memory", "which");
  const std::vector<WorkerStage> stages = workerStages(problem, partition);
  for (size_t s = 0; s < stages.size(); ++s) {
    Seconds computing;
    for (const int32_t layer : stages[s].layers)
      computing += plainVariant(profile.layers[static_cast<size_t>(layer)]).time();
    out += fmt::format("  {:>5}{:>8}{:>9}{:>13}{:>14}  {}\n", s, stages[s].layers.size(),
                       stages[s].workers,
                       formatSeconds(computing / static_cast<double>(stages[s].workers)),
                       memoryText(stages[s].memory), rangeText(profile, stages[s].layers));
  }
  return out;
}

std::string toTable(const PiperProblem& problem, const PiperPartition& partition) {
  const spec::ProfileSpec& profile = problem.profile;
  std::string out = profileText(profile, partition.numDownSets);
  out += field("method", fmt::format("Piper, {} microbatch{} per batch", problem.microbatches,
                                     problem.microbatches == 1 ? "" : "es"));
  out += field("devices",
               fmt::format("{} of {}, {:.6g} GB/s, {}", partition.devicesUsed, problem.devices,
                           problem.bandwidth.count() / 1e9,
                           problem.memory ? formatBytes(*problem.memory) : "no memory limit"));
  const std::string degrees = describe(partition.stages);
  out += field("stages", degrees.size() <= 80 ? degrees : plural(partition.stages.size(), "stage"));
  out += field("time", rateText(partition.time));
  out += field("certificate",
               fmt::format("no partition is faster than {:.10g} s; {}", partition.bound.count(),
                           plural(static_cast<size_t>(partition.numRounds), "round")));
  out += fmt::format("  {:>5}{:>8}{:>10}{:>8}{:>13}{:>14}  {}\n", "stage", "layers", "replicas",
                     "tensor", "time", "memory", "which");
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const PiperStage& stage = partition.stages[s];
    out += fmt::format("  {:>5}{:>8}{:>10}{:>8}{:>13}{:>14}  {}\n", s, stage.layers.size(),
                       stage.dataDegree, stage.tensorDegree, formatSeconds(stage.time),
                       memoryText(stage.memory),
                       rangeText(profile, stage.layers) + ": " + variantsText(profile, stage));
  }
  return out;
}

nlohmann::json toJson(const PipedreamProblem& problem, const PipedreamPartition& partition) {
  nlohmann::json json = {{"method", pipedreamFormName(problem.form)},
                         {"profile", problem.profile.name},
                         {"secondsPerMicrobatch", partition.time.count()},
                         {"dataParallelSeconds", partition.dataParallelTime.count()},
                         {"oneWorkerSeconds", partition.oneWorkerTime.count()},
                         {"downSets", partition.numDownSets},
                         {"summary", describe(partition.stages)},
                         {"partition", stagesJson(problem.profile, partition.stages)}};
  for (const NetworkLevel& level : problem.levels)
    json["levels"].push_back(
        {{"components", level.components}, {"bytesPerSecond", level.bandwidth.count()}});
  if (problem.memory) json["memoryLimitBytes"] = problem.memory->count();
  for (const WorkerStage& stage : workerStages(problem, partition)) {
    nlohmann::json item = {{"layers", idsJson(problem.profile, stage.layers)},
                           {"workers", stage.workers},
                           {"memoryBytes", nullptr}};
    if (stage.memory) item["memoryBytes"] = stage.memory->count();
    json["stages"].push_back(std::move(item));
  }
  return json;
}

nlohmann::json toJson(const PiperProblem& problem, const PiperPartition& partition) {
  nlohmann::json json = {{"method", "piper"},
                         {"profile", problem.profile.name},
                         {"devices", problem.devices},
                         {"devicesUsed", partition.devicesUsed},
                         {"microbatches", problem.microbatches},
                         {"bytesPerSecond", problem.bandwidth.count()},
                         {"secondsPerMicrobatch", partition.time.count()},
                         {"summary", describe(partition.stages)},
                         {"downSets", partition.numDownSets}};
  json["certificate"] = {{"boundSeconds", partition.bound.count()},
                         {"gap", partition.gap},
                         {"rounds", partition.numRounds}};
  if (problem.memory) json["memoryLimitBytes"] = problem.memory->count();
  for (const PiperStage& stage : partition.stages) {
    nlohmann::json item = {{"layers", idsJson(problem.profile, stage.layers)},
                           {"replicas", stage.dataDegree},
                           {"tensor", stage.tensorDegree},
                           {"seconds", stage.time.count()},
                           {"memoryBytes", nullptr}};
    if (stage.memory) item["memoryBytes"] = stage.memory->count();
    for (size_t i = 0; i < stage.layers.size(); ++i)
      item["variants"].push_back(problem.profile.layers[static_cast<size_t>(stage.layers[i])]
                                     .variants[static_cast<size_t>(stage.variants[i])]
                                     .name);
    json["stages"].push_back(std::move(item));
  }
  return json;
}

}  // namespace trireme::planner
