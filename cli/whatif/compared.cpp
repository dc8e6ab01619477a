#include "cli/whatif/compared.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output/wrap.h"
#include "cli/whatif/report.h"
#include "ir/spec/load.h"
#include "planner/search/search.h"
#include "planner/whatif/changes.h"

namespace trireme::cli {
namespace {

using planner::Query;

// The most that the query may use.
int64_t devicesOf(const Query& query) { return query.pins.gpus.value_or(query.cluster.numDevices); }

struct Asked {
  const char* name;
  std::string before, after;
};

std::vector<Asked> askedOf(const Query& before, const Query& after) {
  const spec::TrainingSpec &a = before.training, &b = after.training;
  return {{"precision", spec::precisionText(a), spec::precisionText(b)},
          {"seq", fmt::format("{}", a.sequenceLength), fmt::format("{}", b.sequenceLength)},
          {"batch", fmt::format("{}", a.globalBatchSize), fmt::format("{}", b.globalBatchSize)},
          {"GPUs", fmt::format("{}", devicesOf(before)), fmt::format("{}", devicesOf(after))}};
}

std::string bothNames(const std::string& before, const std::string& after) {
  return before == after ? before : before + ", " + after;
}

}  // namespace

std::string comparedQuestion(const Query& before, const Query& after) {
  std::string text =
      wrapLine(fmt::format("{:<14}{}, {} parameters; {}; stack {}", "question", before.model.name,
                           formatCount(static_cast<double>(before.model.numParameters())),
                           bothNames(before.cluster.name, after.cluster.name),
                           bothNames(before.stack.name, after.stack.name)),
               14);
  std::string same;
  for (const Asked& asked : askedOf(before, after))
    if (asked.before == asked.after)
      same += fmt::format("{}{} {}", same.empty() ? "" : ", ", asked.name, asked.before);
  return text + (same.empty() ? "" : wrapLine(fmt::format("{:<14}{}", "everywhere", same), 14));
}

std::vector<std::string> comparedChanges(const Query& askedBefore, const Query& askedAfter) {
  const Query before = planner::withStackOnDevice(askedBefore),
              after = planner::withStackOnDevice(askedAfter);
  std::vector<std::string> lines;
  for (const Asked& asked : askedOf(before, after))
    if (asked.before != asked.after)
      lines.push_back(fmt::format("{} {} -> {}", asked.name, asked.before, asked.after));
  for (auto& more :
       {planner::clusterChanges(before, after), planner::stackChanges(before.stack, after.stack)})
    lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

nlohmann::json comparedJson(const Query& query) {
  return {{"model", query.model.name},
          {"cluster", query.cluster.name},
          {"stack", query.stack.name},
          {"precision", spec::precisionName(query.training.precision)},
          {"sequence", query.training.sequenceLength},
          {"batch", query.training.globalBatchSize},
          {"gpus", devicesOf(query)}};
}

}  // namespace trireme::cli
