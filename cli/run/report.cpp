#include "cli/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output/curve.h"
#include "cli/output/wrap.h"
#include "ir/base/format.h"

namespace trireme::cli {
namespace {

double lossOf(const runtime::StepResult& step) { return step.loss; }

std::vector<double> lossesOf(const LoopResult& loop) {
  std::vector<double> losses;
  std::transform(loop.steps.begin(), loop.steps.end(), std::back_inserter(losses), lossOf);
  return losses;
}

double tokensPerSecond(const RunReport& report) {
  return static_cast<double>(report.tokensPerStep) / measuredStep(report.loop).count();
}

std::string beside(const std::optional<Seconds>& predicted, Seconds measured) {
  if (!predicted) return "";
  return fmt::format(", predicted {} ({:+.1f} %)", formatSeconds(*predicted),
                     100 * (*predicted / measured - 1));
}

std::string stepTimes(const RunReport& report) {
  const Seconds measured = measuredStep(report.loop);
  return fmt::format("measured {}{}; {:.0f} tokens/s", formatSeconds(measured),
                     beside(report.predictedStep, measured), tokensPerSecond(report));
}

}  // namespace

Seconds measuredStep(const LoopResult& loop) {
  std::vector<double> times;
  for (size_t i = loop.steps.size() > 1 ? 1 : 0; i < loop.steps.size(); ++i)
    times.push_back(loop.steps[i].seconds);
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return Seconds(n % 2 == 1 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2);
}

std::string shortReport(const RunReport& report) {
  const auto& steps = report.loop.steps;
  const auto numSkipped = std::count_if(steps.begin(), steps.end(), [](const auto& step) {
    return step.scaled && step.scaled->isSkipped;
  });
  const Seconds measured = measuredStep(report.loop);
  return fmt::format("steps {} to {}: loss {:.4f} -> {:.4f}, {} per step{}{}{}\n",
                     steps.front().step + 1, steps.back().step + 1, steps.front().loss,
                     steps.back().loss, formatSeconds(measured),
                     beside(report.predictedStep, measured),
                     numSkipped > 0 ? fmt::format(", {} skipped", numSkipped) : "",
                     report.loop.interrupted ? ", interrupted" : "");
}

std::string longReport(const RunReport& report) {
  const auto& steps = report.loop.steps;
  std::string text;
  const auto field = [&](std::string_view name, const std::string& value) {
    text += wrapLine(fmt::format("{:<14}{}", name, value), 14);
  };
  const int64_t ranks = report.numRanks;
  field("plan", report.plan);
  field("steps",
        fmt::format("{} to {} on {} rank{}{}", steps.front().step + 1, steps.back().step + 1, ranks,
                    ranks == 1 ? "" : "s", report.loop.interrupted ? ", interrupted" : ""));
  field("step time", stepTimes(report));
  field("memory", fmt::format("process {} at its peak; arenas {}", formatBytes(report.memory.peak),
                              formatBytes(report.arenas)));
  if (!report.loop.lastCheckpoint.empty()) field("checkpoint", report.loop.lastCheckpoint);
  if (const auto& scaled = steps.back().scaled)
    field("loss scale", fmt::format("{}, {} of {} steps skipped", scaled->lossScale,
                                    scaled->numSkipped, steps.back().step + 1));
  field("loss", fmt::format("{:.4f} -> {:.4f}", steps.front().loss, steps.back().loss));
  return text + drawCurve(lossesOf(report.loop), steps.front().step + 1);
}

nlohmann::ordered_json jsonReport(const RunReport& report) {
  nlohmann::ordered_json json;
  json["plan"] = report.plan;
  json["ranks"] = report.numRanks;
  json["firstStep"] = report.loop.steps.front().step + 1;
  json["losses"] = lossesOf(report.loop);
  json["stepSeconds"] = nlohmann::json::array();
  for (const runtime::StepResult& step : report.loop.steps)
    json["stepSeconds"].push_back(step.seconds);
  if (const auto& scaled = report.loop.steps.back().scaled) {
    json["lossScale"] = scaled->lossScale;
    json["skippedSteps"] = scaled->numSkipped;
  }
  json["interrupted"] = report.loop.interrupted;
  json["measuredStepSeconds"] = measuredStep(report.loop).count();
  if (report.predictedStep) json["predictedStepSeconds"] = report.predictedStep->count();
  json["tokensPerSecond"] = tokensPerSecond(report);
  json["processPeakBytes"] = report.memory.peak.count();
  json["arenaBytes"] = report.arenas.count();
  if (!report.loop.lastCheckpoint.empty()) json["checkpoint"] = report.loop.lastCheckpoint;
  return json;
}

}  // namespace trireme::cli
