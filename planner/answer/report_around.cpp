// What binds the answer, what would change it, and its critical path.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/format.h"
#include "planner/answer/report.h"
#include "planner/answer/table_lines.h"
#include "planner/parts.h"
#include "planner/plan_text.h"

namespace trireme::planner {
namespace {

// The other plan in the words that tell it from `plan`.
std::string difference(const plan::Plan& other, const plan::Plan& plan) {
  return summary(other) != summary(plan) ? summary(other) : "layers " + layersText(other);
}

void appendLimit(std::string& out, const Limit& limit, const PlanResult& result) {
  const Seconds step = result.estimate.step;
  const auto gain = [&](Seconds faster) {
    return fmt::format("{:.1f} % faster", 100 * (1 - faster / step));
  };
  if (limit.kind == LimitKind::kRule)
    return appendField(out, "binding",
                       fmt::format("{}; idle: {} of {} devices", limit.what,
                                   result.gpusAvailable - result.gpusUsed, result.gpusAvailable));
  if (limit.kind == LimitKind::kBatch)
    return appendField(out, "binding",
                       fmt::format("{}: {} take {}, {}: {}", limit.what,
                                   limit.plan.training.globalBatchSize, formatSeconds(limit.step),
                                   gain(limit.step), difference(limit.plan, result.plan)));
  if (limit.kind == LimitKind::kPin || limit.kind == LimitKind::kMost)
    return appendField(
        out, "binding",
        fmt::format("{}: {} takes {}, {}", nameOf(limit), difference(limit.plan, result.plan),
                    formatSeconds(limit.step), gain(limit.step)));
  appendField(
      out, "binding",
      fmt::format("memory: the next better plan is {} short: {} takes {}, {}",
                  formatBytesExactly(limit.nearestMissing), difference(limit.nearest, result.plan),
                  formatSeconds(limit.nearestStep), gain(limit.nearestStep)));
  if (limit.plan != limit.nearest)
    appendWrapped(
        out,
        fmt::format("{:14}the best without a limit is {} short: {} takes {}, {}", "",
                    formatBytesExactly(limit.missing), difference(limit.plan, result.plan),
                    formatSeconds(limit.step), gain(limit.step)),
        14);
}

// "0 .. 6, 3".
std::string stageRanges(const std::vector<int64_t>& stages) {
  std::string text;
  for (size_t i = 0; i < stages.size();) {
    const int64_t step = i + 1 < stages.size() ? stages[i + 1] - stages[i] : 0;
    size_t end = i;
    while ((step == 1 || step == -1) && end + 1 < stages.size() &&
           stages[end + 1] - stages[end] == step)
      ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", stages[i]);
    if (end > i) text += fmt::format("{}{}", end > i + 1 ? ".." : ", ", stages[end]);
    i = end + 1;
  }
  return fmt::format("stage{} {}", stages.size() == 1 ? "" : "s", text);
}

// "48 F of 4.100 ms, 48 B of 8.300 ms (and W, where the backward is split); tensor parallel 1.060
// s, transfers 60.0 us".
std::string passesText(const PathPart& part) {
  std::string text;
  const auto add = [&](const char* between, const std::string& more) {
    text += (text.empty() ? "" : between) + more;
  };
  const auto addPasses = [&](int64_t count, const char* name, Seconds time) {
    if (count > 0)
      add(", ", fmt::format("{} {} of {}", count, name,
                            formatSeconds(time / static_cast<double>(count))));
  };
  addPasses(part.numForward, "F", part.forward);
  addPasses(part.numBackward, "B", part.backward);
  addPasses(part.numWeights, "W", part.weights);
  if (part.tensorParallel.count() > 0)
    add("; ", "of which tensor parallel " + formatSeconds(part.tensorParallel));
  if (part.transfers.count() > 0) add("; ", "transfers " + formatSeconds(part.transfers));
  return text;
}

// Of hardware that gives less; NCCL has more channels over faster links.
std::string lacks(const Sensitivity& s, const PlanResult& result) {
  if (s.gain >= 0 || s.missing <= Bytes() || !(s.plan.training == result.plan.training)) return "";
  return fmt::format("; today's plan lacks {} there, for buffers of the links",
                     formatBytes(s.missing));
}

// "17.3 s, 0.40 % above the estimate's 17.2 s".
std::string besideClosedForm(const CriticalPath& path) {
  const double above = 100 * (path.simulated / path.estimated - 1);
  return fmt::format("{}, {:.2f} % {} the estimate's {}{}", formatSeconds(path.simulated),
                     std::abs(above), above < 0 ? "below" : "above", formatSeconds(path.estimated),
                     path.isAlone ? ", for a step that no other follows" : "");
}

}  // namespace

std::string toTable(const Outlook& outlook, const PlanResult& result) {
  std::string out;
  for (const Limit& limit : outlook.limits) appendLimit(out, limit, result);
  if (outlook.limits.empty())
    appendField(out, "binding",
                "nothing: without pins and limits, that of memory, too, no plan is faster");
  out += "sensitivity\n";
  size_t width = 0;
  for (const Sensitivity& s : outlook.sensitivities) width = std::max(width, s.change.size());
  for (const Sensitivity& s : outlook.sensitivities)
    appendWrapped(
        out,
        fmt::format("  {:<{}}{:>12} {:>+6.2f} % tokens/s  {}{}", s.change, width,
                    formatSeconds(s.step), 100 * s.gain,
                    s.samePlan ? "same plan" : difference(s.plan, result.plan), lacks(s, result)),
        6);
  return out;
}

std::string simulatedLine(const CriticalPath& path) {
  std::string out;
  appendField(out, "simulated", besideClosedForm(path));
  return out;
}

std::string toTable(const CriticalPath& path) {
  std::string out;
  appendField(out, "critical path", "simulated: " + besideClosedForm(path));
  std::vector<Seconds> times;
  for (const PathPart& part : path.parts) times.push_back(part.total());
  const std::vector<double> percent = percentages(times);
  for (size_t i = 0; i < path.parts.size(); ++i) {
    const PathPart& part = path.parts[i];
    const std::string passes = passesText(part);
    appendWrapped(out,
                  fmt::format("  {:<20}{:>12}{:>8.1f} %  {}{}{}", phaseName(part.phase),
                              formatSeconds(times[i]), percent[i], stageRanges(part.stages),
                              passes.empty() ? "" : ": ", passes),
                  46);
  }
  return out;
}

}  // namespace trireme::planner
