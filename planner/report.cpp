#include "planner/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/format.h"

namespace trireme::planner {
namespace {

constexpr size_t kColumns = 100;

// Breaks at spaces; further lines are indented by `indent`.
void appendWrapped(std::string& out, std::string line, size_t indent) {
  while (line.size() > kColumns) {
    size_t at = line.rfind(' ', kColumns);
    if (at == std::string::npos || at <= indent) at = kColumns;
    out += line.substr(0, at) + "\n";
    const size_t rest = line.find_first_not_of(' ', at);
    line = std::string(indent, ' ') + (rest == std::string::npos ? "" : line.substr(rest));
  }
  out += line + "\n";
}

void appendField(std::string& out, const std::string& name, const std::string& value) {
  appendWrapped(out, fmt::format("{:<14}{}", name, value), 14);
}

void appendTimes(std::string& out, const cost::Estimate& estimate) {
  for (const BreakdownPart& part : breakdownParts(estimate.breakdown))
    if (part.time.count() > 0)
      out += fmt::format("  {:<20}{:>12}{:>8.1f} %\n", part.name, formatSeconds(part.time),
                         100 * (part.time / estimate.step));
}

void appendMemory(std::string& out, const cost::Estimate& estimate) {
  for (const MemoryPart& part : memoryParts(estimate.memory))
    if (part.bytes.count() > 0)
      out += fmt::format("  {:<20}{:>12}{:>8.1f} %\n", part.name, formatBytes(part.bytes),
                         100 * (part.bytes / estimate.memoryAvailable));
}

void appendRunnersUp(std::string& out, const PlanResult& result) {
  if (result.runnersUp.empty()) return;
  out += "runners-up\n";
  for (const RunnerUp& r : result.runnersUp)
    appendWrapped(out,
                  fmt::format("  {:>10} {:>+6.1f} %  {}; {}", formatSeconds(r.estimate.step),
                              100 * (r.slower / result.estimate.step), summary(r.plan),
                              r.lostBy == "tie"
                                  ? "as fast, but less simple"
                                  : fmt::format("{} +{}", r.lostBy, formatSeconds(r.lostByAmount))),
                  23);
}

void appendCertificate(std::string& out, const PlanResult& result) {
  const Certificate& c = result.certificate;
  appendField(
      out, "certificate",
      c.gap <= 0
          ? fmt::format("no plan of the space is faster than {}", formatSeconds(c.bound))
          : fmt::format("within {:.2f} % of the bound {}", 100 * c.gap, formatSeconds(c.bound)));
  std::string pruned;
  for (const PruneCount& p : c.pruned) pruned += fmt::format(", {} by {}", p.count, p.rule);
  appendField(
      out, "search",
      fmt::format("{} groups, {} candidates bounded, {} costed in {}{}{}", c.numGroups,
                  c.numBounded, c.numCosted, formatSeconds(Seconds(result.seconds)),
                  pruned.empty() ? "" : "; pruned", pruned.empty() ? "" : pruned.substr(1)));
}

nlohmann::json estimateJson(const cost::Estimate& estimate) {
  nlohmann::json json;
  json["stepSeconds"] = estimate.step.count();
  json["tokensPerSecond"] = estimate.tokensPerSecond;
  json["modelFlopsUtilisation"] = estimate.modelFlopsUtilisation;
  for (const BreakdownPart& part : breakdownParts(estimate.breakdown))
    json["breakdownSeconds"][part.name] = part.time.count();
  for (const MemoryPart& part : memoryParts(estimate.memory))
    json["memoryBytes"][part.name] = part.bytes.count();
  json["memoryTotalBytes"] = estimate.memory.total().count();
  json["memoryAvailableBytes"] = estimate.memoryAvailable.count();
  json["memoryStage"] = estimate.memory.stage;
  return json;
}

}  // namespace

std::string summary(const plan::Plan& plan) {
  std::string text = fmt::format("tp {}, pp {}, ", plan.tp, plan.pp);
  if (plan.cp > 1) text += fmt::format("cp {}, ", plan.cp);
  text += fmt::format("dp {}, microbatch {}, {}", plan.dp(), plan.microbatchSize,
                      plan::scheduleName(plan.schedule));
  if (plan.virtualStages > 1) text += fmt::format(" x {}", plan.virtualStages);
  if (plan.recompute != plan::Recompute::kNone)
    text += fmt::format(", recompute {}", plan::recomputeName(plan.recompute));
  if (plan.recomputeLayers > 0)
    text += fmt::format(" of {} layer{} per virtual stage", plan.recomputeLayers,
                        plan.recomputeLayers == 1 ? "" : "s");
  if (plan.stateSharding != plan::StateSharding::kNone)
    text += fmt::format(", sharded {}", plan::stateShardingName(plan.stateSharding));
  if (plan.stateSharding != plan::StateSharding::kNone && plan.dpReplicate > 1)
    text += fmt::format(" in {} replicas", plan.dpReplicate);
  if (plan.sequenceParallel) text += ", sequence parallel";
  if (plan.scatterGather) text += ", scatter-gather";
  return text;
}

std::string layersText(const plan::Plan& plan) {
  std::vector<std::string> stages;
  for (const auto& stage : plan.layers) {
    std::string text;
    for (const plan::LayerRange& range : stage)
      text += (text.empty() ? "" : "+") + fmt::format("{}", range.count);
    stages.push_back(std::move(text));
  }
  std::string text;
  for (size_t i = 0; i < stages.size();) {
    size_t end = i;
    while (end < stages.size() && stages[end] == stages[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", stages[i]);
    if (end - i > 1) text += fmt::format(" (x {})", end - i);
    i = end;
  }
  return text;
}

std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& b) {
  return {{"forward", b.forward},
          {"backward", b.backward},
          {"tensor parallel", b.tensorParallel},
          {"pipeline transfers", b.pipeline},
          {"bubble", b.bubble},
          {"data parallel", b.dataParallel},
          {"synchronisation", b.synchronisation},
          {"optimizer", b.optimizer}};
}

std::vector<MemoryPart> memoryParts(const cost::MemoryUse& memory) {
  const auto bytes = [](int64_t n) { return Bytes(static_cast<double>(n)); };
  const expand::ArenaUse& a = memory.arena;
  return {{"parameters", bytes(a.parameters)},
          {"gradients", bytes(a.gradients)},
          {"optimizer", bytes(a.optimizer) + memory.optimizerDifference},
          {"activations", bytes(a.activations) + memory.unfusedAttention},
          {"scratch", bytes(a.scratch)},
          {"workspace", bytes(a.workspace)},
          {"other", bytes(a.other)},
          {"reserve", memory.reserve}};
}

std::string toTable(const PlanResult& result) {
  const cost::Estimate& e = result.estimate;
  std::string out;
  appendField(out, "plan", summary(result.plan));
  appendField(
      out, "devices",
      fmt::format("{} of {}{}", result.gpusUsed, result.gpusAvailable,
                  result.gpusUsed < result.gpusAvailable ? ": no legal layout has more" : ""));
  appendField(out, "layers", layersText(result.plan));
  appendField(out, "step",
              fmt::format("{}, {:.0f} tokens/s, {:.1f} % of peak (model FLOPs)",
                          formatSeconds(e.step), e.tokensPerSecond, 100 * e.modelFlopsUtilisation));
  appendTimes(out, e);
  appendField(out, "memory",
              fmt::format("{} of {} on stage {}, the fullest", formatBytes(e.memory.total()),
                          formatBytes(e.memoryAvailable), e.memory.stage));
  appendMemory(out, e);
  appendRunnersUp(out, result);
  if (!result.rejections.empty()) out += "rejected\n";
  for (const Rejection& r : result.rejections)
    appendWrapped(
        out,
        fmt::format("  {:<22}({}) needs {}, there is {}", r.subject, r.rule, r.needed, r.available),
        24);
  appendCertificate(out, result);
  return out;
}

nlohmann::json toJson(const PlanResult& result) {
  nlohmann::json json;
  json["plan"] = plan::printPlan(result.plan);
  json["summary"] = summary(result.plan);
  json["estimate"] = estimateJson(result.estimate);
  json["gpusUsed"] = result.gpusUsed;
  json["gpusAvailable"] = result.gpusAvailable;
  json["runnersUp"] = nlohmann::json::array();
  for (const RunnerUp& r : result.runnersUp)
    json["runnersUp"].push_back({{"plan", plan::printPlan(r.plan)},
                                 {"summary", summary(r.plan)},
                                 {"estimate", estimateJson(r.estimate)},
                                 {"slowerSeconds", r.slower.count()},
                                 {"lostBy", r.lostBy},
                                 {"lostBySeconds", r.lostByAmount.count()}});
  json["rejections"] = nlohmann::json::array();
  for (const Rejection& r : result.rejections)
    json["rejections"].push_back({{"rule", r.rule},
                                  {"subject", r.subject},
                                  {"needed", r.needed},
                                  {"available", r.available}});
  const Certificate& c = result.certificate;
  json["certificate"] = {{"boundSeconds", c.bound.count()},
                         {"gap", c.gap},
                         {"closed", c.closed},
                         {"groups", c.numGroups},
                         {"bounded", c.numBounded},
                         {"costed", c.numCosted}};
  json["certificate"]["pruned"] = nlohmann::json::object();
  for (const PruneCount& p : c.pruned) json["certificate"]["pruned"][p.rule] = p.count;
  json["searchSeconds"] = result.seconds;
  return json;
}

}  // namespace trireme::planner
