// Answers as JSON.
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "planner/answer/report.h"
#include "planner/certainty.h"
#include "planner/parts.h"
#include "planner/plan_text.h"

namespace trireme::planner {
namespace {

std::string_view kindName(LimitKind kind) {
  switch (kind) {
    case LimitKind::kMemory:
      return "memory";
    case LimitKind::kPin:
      return "pin";
    case LimitKind::kMost:
      return "limit";
    case LimitKind::kRule:
      return "rule";
    case LimitKind::kBatch:
      return "batch";
  }
  return "";
}

}  // namespace

nlohmann::json toJson(const cost::Estimate& estimate) {
  nlohmann::json json;
  json["stepSeconds"] = estimate.step.count();
  const auto add = [&](const char* name, const cost::TimeRange& range) {
    json[name] = {range.low.count(), range.high.count()};
  };
  if (estimate.interval) add("intervalSeconds", *estimate.interval);
  if (estimate.interval && estimate.interval->ofOthers)
    add("intervalOfOthersSeconds", *estimate.interval->ofOthers);
  json["tokensPerSecond"] = estimate.tokensPerSecond;
  json["modelFlopsUtilisation"] = estimate.modelFlopsUtilisation;
  for (const BreakdownPart& part : breakdownParts(estimate.breakdown)) {
    json["breakdownSeconds"][part.name] = part.time.count();
    json["breakdownPercent"][part.name] = 100 * (part.time / estimate.step);
  }
  for (const MemoryPart& part : memoryParts(estimate.memory))
    json["memoryBytes"][part.name] = part.bytes.count();
  json["memoryTotalBytes"] = estimate.memory.total().count();
  json["memoryAvailableBytes"] = estimate.memoryAvailable.count();
  json["headroomBytes"] = estimate.headroom.count();
  json["memoryTight"] = isTight(estimate);
  json["memoryStage"] = estimate.memory.stage;
  return json;
}

nlohmann::json toJson(const CriticalPath& path) {
  nlohmann::json json = {{"simulatedSeconds", path.simulated.count()},
                         {"estimatedSeconds", path.estimated.count()}};
  json["phases"] = nlohmann::json::array();
  for (const PathPart& part : path.parts)
    json["phases"].push_back({{"phase", phaseName(part.phase)},
                              {"stages", part.stages},
                              {"seconds", part.total().count()},
                              {"percent", 100 * (part.total() / path.simulated)},
                              {"forwardPasses", part.numForward},
                              {"backwardPasses", part.numBackward},
                              {"forwardSeconds", part.forward.count()},
                              {"backwardSeconds", part.backward.count()},
                              {"weightsPasses", part.numWeights},
                              {"weightsSeconds", part.weights.count()},
                              {"tensorParallelSeconds", part.tensorParallel.count()},
                              {"transferSeconds", part.transfers.count()}});
  return json;
}

nlohmann::json toJson(const Shortfall& shortfall) {
  constexpr const char* kKinds[] = {"pin", "all pins", "stack", "devices", "batch", "headroom"};
  nlohmann::json json = {
      {"fits", false}, {"reason", shortfall.reason.message()}, {"nearest", nullptr}};
  if (shortfall.nearest)
    json["nearest"] = {{"plan", plan::printPlan(shortfall.nearest->plan)},
                       {"summary", summary(shortfall.nearest->plan)},
                       {"estimate", toJson(shortfall.nearest->estimate)},
                       {"missingBytes", shortfall.nearest->estimate.missing().count()}};
  json["changes"] = nlohmann::json::array();
  for (const Relaxation& change : shortfall.changes)
    json["changes"].push_back({{"kind", kKinds[static_cast<size_t>(change.kind)]},
                               {"change", change.change},
                               {"devices", change.devices},
                               {"plan", plan::printPlan(change.plan)},
                               {"summary", summary(change.plan)},
                               {"estimate", toJson(change.estimate)}});
  return json;
}

nlohmann::json toJson(const PlanResult& result) {
  nlohmann::json json;
  json["plan"] = plan::printPlan(result.plan);
  json["summary"] = summary(result.plan);
  json["estimate"] = toJson(result.estimate);
  json["gpusUsed"] = result.gpusUsed;
  json["gpusAvailable"] = result.gpusAvailable;
  if (result.gpusUsed < result.gpusAvailable) json["idleBecause"] = idleReason(result);
  if (!result.partlyFilled.empty()) json["partlyFilled"] = result.partlyFilled;
  json["runnersUp"] = nlohmann::json::array();
  for (const RunnerUp& r : result.runnersUp) {
    json["runnersUp"].push_back({{"plan", plan::printPlan(r.plan)},
                                 {"summary", summary(r.plan)},
                                 {"estimate", toJson(r.estimate)},
                                 {"slowerSeconds", r.slower.count()},
                                 {"lostBy", r.lostBy},
                                 {"lostBySeconds", r.lostByAmount.count()}});
    if (r.simulated) json["runnersUp"].back()["simulatedSeconds"] = r.simulated->count();
  }
  json["rejections"] = nlohmann::json::array();
  for (const Rejection& r : result.rejections)
    json["rejections"].push_back({{"rule", r.rule},
                                  {"subject", r.subject},
                                  {"needed", r.needed},
                                  {"available", r.available}});
  const Certificate& c = result.certificate;
  json["certificate"] = {
      {"boundSeconds", c.bound.count()},  {"gap", c.gap},         {"ofEvenChunks", c.ofEvenChunks},
      {"planIsBeyond", isBeyond(result)}, {"allCuts", nullptr},   {"groups", c.numGroups},
      {"bounded", c.numBounded},          {"costed", c.numCosted}};
  if (c.boundOfAllCuts)
    json["certificate"]["allCuts"] = {{"boundSeconds", c.boundOfAllCuts->count()},
                                      {"gap", c.gapOfAllCuts}};
  json["certificate"]["pruned"] = nlohmann::json::object();
  for (const PruneCount& p : c.pruned) json["certificate"]["pruned"][p.rule] = p.count;
  json["searchSeconds"] = result.seconds;
  return json;
}

nlohmann::json toJson(const Roomier& roomier) {
  if (!roomier.plan) return nullptr;
  return {{"plan", plan::printPlan(roomier.plan->plan)},
          {"summary", summary(roomier.plan->plan)},
          {"stepSeconds", roomier.plan->estimate.step.count()},
          {"memoryBytes", roomier.plan->estimate.memory.total().count()}};
}

nlohmann::json stagesJson(const std::vector<cost::MemoryUse>& stages) {
  nlohmann::json json = nlohmann::json::array();
  for (const cost::MemoryUse& use : stages) json.push_back(use.total().count());
  return json;
}

nlohmann::json toJson(const Alternative& a) {
  const bool fits = a.outcome != Outcome::kForbidden && a.outcome != Outcome::kDoesNotFit;
  nlohmann::json json = {{"choice", a.choice},
                         {"chosen", a.chosen},
                         {"other", a.other + (a.also.empty() ? "" : " with " + a.also)},
                         {"line", toLine(a)},
                         {"fits", fits}};
  json["plan"] = plan::printPlan(a.plan);
  if (fits) json["differenceSeconds"] = a.difference.count();
  if (a.outcome == Outcome::kDoesNotFit) json["missingBytes"] = a.missing.count();
  if (a.outcome == Outcome::kForbidden) json["rule"] = a.rule;
  return json;
}

nlohmann::json toJson(const PlanCheck& check) {
  nlohmann::json json;
  json["plan"] = plan::printPlan(check.plan);
  json["summary"] = summary(check.plan);
  json["estimate"] = toJson(check.estimate);
  json["stageBytes"] = stagesJson(check.explanation.stages);
  json["fits"] = check.estimate.fits();
  json["missingBytes"] = check.estimate.missing().count();
  json["bestChange"] = check.bestChange ? toJson(*check.bestChange) : nlohmann::json();
  json["changes"] = nlohmann::json::array();
  for (const Alternative& a : check.explanation.alternatives) json["changes"].push_back(toJson(a));
  json["optimum"] = nullptr;
  if (!check.optimum) {
    json["noOptimum"] = check.noOptimum;
    return json;
  }
  json["optimum"] = toJson(*check.optimum);
  json["behindSeconds"] = check.behind().count();
  json["behindPercent"] = 100 * (check.behind() / check.optimum->estimate.step);
  return json;
}

nlohmann::json toJson(const Outlook& outlook) {
  nlohmann::json json;
  json["binding"] = nlohmann::json::array();
  for (const Limit& limit : outlook.limits) {
    const bool isMemory = limit.kind == LimitKind::kMemory;
    const bool isPin = limit.kind == LimitKind::kPin || limit.kind == LimitKind::kMost;
    nlohmann::json item = {{"kind", kindName(limit.kind)}};
    if (!isMemory) item["what"] = limit.what;
    if (isMemory || isPin || limit.kind == LimitKind::kBatch) {
      item["plan"] = plan::printPlan(limit.plan);
      item["stepSeconds"] = limit.step.count();
    }
    if (isMemory) {
      item["missingBytes"] = limit.missing.count();
      item["nearest"] = {{"plan", plan::printPlan(limit.nearest)},
                         {"stepSeconds", limit.nearestStep.count()},
                         {"missingBytes", limit.nearestMissing.count()}};
    }
    json["binding"].push_back(std::move(item));
  }
  json["sensitivities"] = nlohmann::json::array();
  for (const Sensitivity& s : outlook.sensitivities)
    json["sensitivities"].push_back({{"change", s.change},
                                     {"plan", plan::printPlan(s.plan)},
                                     {"samePlan", s.samePlan},
                                     {"stepSeconds", s.step.count()},
                                     {"tokensPerSecond", s.tokensPerSecond},
                                     {"gain", s.gain},
                                     {"missingBytes", s.missing.count()}});
  return json;
}

}  // namespace trireme::planner
