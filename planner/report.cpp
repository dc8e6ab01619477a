#include "planner/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "cost_models/formulas.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/cuts.h"

namespace trireme::planner {
namespace {

bool isOwn(const cost::Estimate& e) { return !e.memoryOfStages.empty(); }

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

constexpr std::string_view kContextParallel = "context parallel";

// "0 %", "0.84 %"; what two digits behind the point would hide has as many as show it: "0.003 %".
std::string gapText(double gap) {
  constexpr double kLeast = 1e-9;  // per cent; less is rounding
  const double percent = 100 * std::max(gap, 0.0);
  if (percent == 0) return "0 %";
  if (percent < kLeast) return "below 1e-9 %";
  const int digits = std::max(2, static_cast<int>(std::ceil(-std::log10(percent))));
  return fmt::format("{:.{}f} %", percent, digits);
}

std::vector<double> percentOf(const std::vector<BreakdownPart>& parts) {
  std::vector<Seconds> times;
  for (const BreakdownPart& part : parts) times.push_back(part.time);
  return percentages(times);
}

// Parts of no length are left out, but what a plan with context parallelism exchanges: hidden is an
// answer, too.
void appendTimes(std::string& out, const plan::Plan& plan, const cost::Estimate& estimate) {
  const std::vector<BreakdownPart> parts = breakdownParts(estimate.breakdown);
  const std::vector<double> percent = percentOf(parts);
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].time.count() > 0 || (plan.cp > 1 && parts[i].name == kContextParallel))
      out += fmt::format("  {:<20}{:>12}{:>8.1f} %\n", parts[i].name, formatSeconds(parts[i].time),
                         percent[i]);
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
                  fmt::format("  {:>10} {:>+6.1f} %  {}; {}{}", formatSeconds(r.estimate.step),
                              100 * (r.slower / result.estimate.step), summary(r.plan),
                              r.lostBy == "tie"
                                  ? "as fast, but less simple"
                                  : fmt::format("{} +{}", r.lostBy, formatSeconds(r.lostByAmount)),
                              r.simulated ? "; simulated " + formatSeconds(*r.simulated) : ""),
                  23);
}

// "optimal: gap 0 %, bound 15.051 s; ..." or "gap 0.80 %, bound 14.930 s; ...": one line.
std::string proofOf(const PlanResult& result) {
  const Certificate& c = result.certificate;
  int64_t pruned = 0;
  for (const PruneCount& p : c.pruned) pruned += p.count;
  const std::string ofAllCuts =
      c.boundOfAllCuts ? fmt::format(" (all cuts: gap {}, bound {})", gapText(c.gapOfAllCuts),
                                     formatSeconds(*c.boundOfAllCuts))
                       : "";
  return fmt::format("{}gap {}{}, bound {}{}; {} bounded, {} costed, {} pruned",
                     c.gap > 0          ? ""
                     : isBeyond(result) ? "no even chunks are faster: "
                                        : "optimal: ",
                     gapText(c.gap), c.ofEvenChunks ? " among even chunks" : "",
                     formatSeconds(c.bound), ofAllCuts, c.numBounded, c.numCosted, pruned);
}

// What the numbers of the certificate rest on. `winner`: what the result is to the reader.
std::string searchOf(const PlanResult& result, const char* winner) {
  const Certificate& c = result.certificate;
  std::string text = fmt::format("{} groups of candidates in {}", c.numGroups,
                                 formatSeconds(Seconds(result.seconds)));
  const char* before = "; pruned";
  for (const PruneCount& p : c.pruned)
    text += fmt::format("{} {} by {}", std::exchange(before, ","), p.count, p.rule);
  if (c.gap > 0) text += "; of uneven cuts only the likely ones were costed";
  if (c.ofEvenChunks)
    text += "; even chunks: those of a stage differ by one layer at most (others: --layers)";
  if (isBeyond(result)) text += fmt::format("; the {}'s are not even", winner);
  if (isBeyond(result) && !c.boundOfAllCuts) text += ", and others like it are not bounded";
  return text;
}

void appendCertificate(std::string& out, const PlanResult& result, const char* winner) {
  appendField(out, "certificate", proofOf(result));
  appendField(out, "search", searchOf(result, winner));
}

// "6.74 billion", "842 million".
std::string describeCount(double count) {
  if (count < 1e6) return fmt::format("{:.3g} thousand", count / 1e3);
  if (count < 1e9) return fmt::format("{:.3g} million", count / 1e6);
  return count < 1e12 ? fmt::format("{:.3g} billion", count / 1e9)
                      : fmt::format("{:.3g} trillion", count / 1e12);
}

// The plan itself: what it is, how long it takes, what it needs.
void appendPlan(std::string& out, const plan::Plan& plan, const cost::Estimate& e,
                const std::string& devices) {
  appendField(out, "plan", summary(plan));
  appendField(out, "devices", devices);
  appendField(out, "layers", layersText(plan));
  appendField(
      out, "step",
      fmt::format("{}, {:.0f} tokens/s, {:.1f} % MFU ({})", formatSeconds(e.step),
                  e.tokensPerSecond, 100 * e.modelFlopsUtilisation, cost::kModelFlopsConvention));
  if (e.interval)
    appendField(out, "interval",
                fmt::format("{} to {} for nine runs of ten{}", formatSeconds(e.interval->low),
                            formatSeconds(e.interval->high),
                            e.interval->isOfOtherDevices ? " on the GPUs that were compared" : ""));
  appendTimes(out, plan, e);
  appendField(out, "memory",
              fmt::format("{} of {} on stage {}, the fullest{}", formatBytes(e.memory.total()),
                          formatBytes(e.memoryAvailable), e.memory.stage,
                          isTight(e) ? "; tight: " + doubtText(isOwn(e)) : ""));
  appendMemory(out, e);
}

// Of a plan that does not fit, also whether the changed one does.
std::string changeLine(const Alternative& a, const cost::Estimate& chosen) {
  const bool fits = a.outcome != Outcome::kForbidden && a.outcome != Outcome::kDoesNotFit;
  return toLine(a) + (fits && !chosen.fits() ? "; fits" : "");
}

std::string distanceText(const PlanCheck& check, const std::string& optimum) {
  const Seconds behind = check.behind();
  const double percent = 100 * (behind / check.optimum->estimate.step);
  if (behind.count() == 0)
    return check.plan == check.optimum->plan ? "0.0 %: the plan is " + optimum
                                             : "0.0 %: as fast as " + optimum;
  if (behind.count() > 0)
    return fmt::format("{:.1f} %, {} slower than {}", percent, formatSeconds(behind), optimum);
  return fmt::format("{:.1f} %, {} faster than the best plan that the search found{}", -percent,
                     formatSeconds(behind * -1), check.estimate.fits() ? "" : ", but does not fit");
}

// Equal neighbours once: "13, 12 (x 3)".
std::string joinRuns(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size();) {
    size_t end = i;
    while (end < parts.size() && parts[end] == parts[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", parts[i]);
    if (end - i > 1) text += fmt::format(" (x {})", end - i);
    i = end;
  }
  return text;
}

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

}  // namespace

bool isBeyond(const PlanResult& result) {
  return result.certificate.ofEvenChunks && !hasEvenChunks(result.plan);
}

RunnerUp runnerUpOf(const CostedPlan& other, const CostedPlan& winner) {
  RunnerUp runner{
      other.plan, other.estimate, other.estimate.step - winner.estimate.step, "tie", {}};
  const auto mine = breakdownParts(other.estimate.breakdown);
  const auto best = breakdownParts(winner.estimate.breakdown);
  for (size_t i = 0; i < mine.size(); ++i) {
    const Seconds difference = mine[i].time - best[i].time;
    if (runner.slower.count() <= 0 || difference <= runner.lostByAmount) continue;
    runner.lostBy = mine[i].name;
    runner.lostByAmount = difference;
  }
  return runner;
}

// Published peaks of software that others make are 3.0 to 6.7 % off on average, by source
// (cost_models/VALIDATION.md), and frameworks' own fragments come on top.
Bytes certainMemory(const cost::Estimate& e) {
  return isOwn(e) ? e.memoryAvailable - e.memory.reserve * kReserveInDoubt
                  : e.memoryAvailable * kCertainShare;
}

bool isTight(const cost::Estimate& e) { return e.fits() && e.memory.total() > certainMemory(e); }

std::string doubtText(bool ownPrograms) {
  return ownPrograms ? "the reserve is an estimate" : "peaks are 3 to 7 % off";
}

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
  if (plan.overlapReductions) text += ", overlapped reductions";
  if (plan.rankOrder != plan::RankOrder::kTpCpDpPp)
    text += fmt::format(", rank order {}", plan::rankOrderName(plan.rankOrder));
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
  return joinRuns(stages);
}

std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& b) {
  return {{"matrix products", b.products},
          {"attention", b.attention},
          {"elementwise", b.elementwise},
          {"recomputation", b.recomputation},
          {"launching", b.launching},
          {"tensor parallel", b.tensorParallel},
          {std::string(kContextParallel), b.contextParallel},
          {"pipeline transfers", b.pipeline},
          {"bubble", b.bubble},
          {"data parallel", b.dataParallel},
          {"synchronisation", b.synchronisation},
          {"optimizer", b.optimizer}};
}

std::vector<double> percentages(const std::vector<Seconds>& times) {
  Seconds total;
  for (const Seconds time : times) total += time;
  std::vector<double> tenths(times.size(), 0);
  if (!(total.count() > 0)) return tenths;
  std::vector<std::pair<double, size_t>> lost;
  double missing = 1000;
  for (size_t i = 0; i < times.size(); ++i) {
    const double exact = 1000 * (times[i] / total);
    tenths[i] = std::floor(exact);
    missing -= tenths[i];
    lost.emplace_back(tenths[i] - exact, i);
  }
  std::stable_sort(lost.begin(), lost.end());
  for (size_t i = 0; i < lost.size() && missing >= 1; ++i, missing -= 1) ++tenths[lost[i].second];
  for (double& tenth : tenths) tenth /= 10;
  return tenths;
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

std::string toText(const Query& query) {
  const spec::TrainingSpec& training = query.training;
  std::string text;
  appendField(
      text, "model",
      fmt::format("{}{}{} parameters", query.model.name, query.model.name.empty() ? "" : ", ",
                  describeCount(static_cast<double>(query.model.numParameters()))));
  appendField(text, "cluster", fmt::format("{}, stack {}", query.cluster.name, query.stack.name));
  appendField(text, "training",
              fmt::format("batch {}, sequence {}, {}", training.globalBatchSize,
                          training.sequenceLength, spec::precisionText(training)));
  return text;
}

std::string stagesText(const std::vector<cost::MemoryUse>& stages) {
  std::vector<std::string> totals;
  for (const cost::MemoryUse& use : stages) totals.push_back(formatBytes(use.total()));
  return joinRuns(totals);
}

namespace {

// A rule that forbids a degree forbids most larger ones too: one line for them all.
void appendRejections(std::string& out, const std::vector<Rejection>& rejections) {
  struct Line {
    const Rejection* smallest;
    int64_t degree, count;
  };
  std::map<std::pair<std::string, std::string>, Line> lines;  // by what is refused, and the rule
  for (const Rejection& r : rejections) {
    const size_t space = std::min(r.subject.find_last_of(' '), r.subject.size());
    const int64_t degree = std::atoll(r.subject.substr(space).c_str());
    Line& line =
        lines.try_emplace({r.subject.substr(0, space), r.rule}, Line{&r, degree, 0}).first->second;
    if (degree < line.degree) line = {&r, degree, line.count};
    ++line.count;
  }
  if (!lines.empty()) out += "rejected\n";
  for (const auto& [what, line] : lines) {
    const Rejection& r = *line.smallest;
    const std::string others = line.count > 1 ? fmt::format(" and {} {}", line.count - 1,
                                                            line.degree > 0 ? "larger" : "others")
                                              : std::string();
    appendWrapped(out,
                  fmt::format("  {:<21} ({}) needs {}, given {}", r.subject + others, r.rule,
                              r.needed, r.available),
                  24);
  }
}

}  // namespace

std::string idleReason(const PlanResult& result) {
  const int64_t most = result.gpusWithLayout;
  if (result.gpusUsed == result.gpusAvailable) return "";
  const std::string none =
      fmt::format("no legal layout{} has more", result.isPinned ? " with these pins" : "");
  if (result.gpusUsed == most) return none;
  const std::string others = most < result.gpusAvailable ? ", and " + none : "";
  if (!result.stepOfMost) return fmt::format("no plan of {} fits in memory{}", most, others);
  return fmt::format("the best plan of {} takes {} more{}", most,
                     formatSeconds(*result.stepOfMost - result.estimate.step), others);
}

std::string toTable(const PlanResult& result) {
  std::string out;
  appendPlan(out, result.plan, result.estimate,
             fmt::format("{} of {}{}{}{}{}", result.gpusUsed, result.gpusAvailable,
                         result.gpusUsed < result.gpusAvailable ? ": " : "", idleReason(result),
                         result.partlyFilled.empty() ? "" : "; ", result.partlyFilled));
  appendRunnersUp(out, result);
  appendRejections(out, result.rejections);
  appendCertificate(out, result, "plan");
  return out;
}

std::string toTable(const Roomier& roomier, const PlanResult& tight) {
  std::string text = fmt::format("none: no plan leaves {} of memory free",
                                 isOwn(tight.estimate)
                                     ? formatBytes(tight.estimate.memory.reserve * kReserveInDoubt)
                                     : fmt::format("{:.0f} %", 100 * (1 - kCertainShare)));
  if (roomier.plan) {
    const auto& [plan, estimate] = *roomier.plan;
    text = fmt::format("{}, +{:.1f} %, {}: {}", formatSeconds(estimate.step),
                       100 * (estimate.step / tight.estimate.step - 1),
                       formatBytes(estimate.memory.total()), summary(plan));
  }
  std::string out;
  appendField(out, "with room", text);
  return out;
}

std::string toTable(const Explanation& explanation, const cost::Estimate& estimate) {
  std::string out;
  if (explanation.stages.size() > 1)
    appendField(out, "stages",
                fmt::format("{} of {} each", stagesText(explanation.stages),
                            formatBytes(estimate.memoryAvailable)));
  const std::vector<BreakdownPart> parts = breakdownParts(estimate.breakdown);
  const auto largest = std::find_if(parts.begin(), parts.end(), [&](const BreakdownPart& part) {
    return part.name == explanation.bottleneck;
  });
  const double percent =
      largest == parts.end() ? 0 : percentOf(parts)[static_cast<size_t>(largest - parts.begin())];
  appendField(
      out, "why",
      fmt::format("the largest part of the step is {}, {:.1f} %{}", explanation.bottleneck, percent,
                  estimate.fits()
                      ? fmt::format("; {} of memory are left", formatBytes(explanation.slack))
                      : ""));
  for (const Alternative& alternative : explanation.alternatives)
    appendWrapped(out, "  " + changeLine(alternative, estimate), 6);
  return out;
}

std::string toTable(const PlanCheck& check, const spec::ClusterSpec& cluster) {
  const cost::Estimate& e = check.estimate;
  std::string out;
  appendPlan(out, check.plan, e,
             fmt::format("{} of {}", check.plan.numRanks(), cluster.numDevices));
  appendField(out, "fits",
              e.fits() ? "yes"
                       : fmt::format("no: {} too much on stage {}", formatBytesExactly(e.missing()),
                                     e.memory.stage));
  if (check.optimum) {
    appendField(out, "optimum",
                fmt::format("{}: {}; layers {}", formatSeconds(check.optimum->estimate.step),
                            summary(check.optimum->plan), layersText(check.optimum->plan)));
    // It is among as many devices as the plan has.
    const int64_t compared = check.optimum->gpusAvailable;
    appendField(out, "distance",
                distanceText(check, compared == cluster.numDevices
                                        ? "the optimum"
                                        : fmt::format("the optimum of {} devices", compared)));
  } else {
    appendField(out, "optimum", "none: " + check.noOptimum);
  }
  appendField(out, "best change",
              check.bestChange ? changeLine(*check.bestChange, e) : "no single change gains");
  if (check.optimum) appendCertificate(out, *check.optimum, "optimum");
  return out + toTable(check.explanation, e);
}

// Of hardware that gives less; NCCL has more channels over faster links.
static std::string lacks(const Sensitivity& s, const PlanResult& result) {
  if (s.gain >= 0 || s.missing <= Bytes() || !(s.plan.training == result.plan.training)) return "";
  return fmt::format("; today's plan lacks {} there, for buffers of the links",
                     formatBytes(s.missing));
}

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
        fmt::format("  {:<{}}{:>12}{:>+7.2f} % tokens/s  {}{}", s.change, width,
                    formatSeconds(s.step), 100 * s.gain,
                    s.samePlan ? "same plan" : difference(s.plan, result.plan), lacks(s, result)),
        6);
  return out;
}

// "17.3 s, 0.40 % above the estimate's 17.2 s".
static std::string besideClosedForm(const CriticalPath& path) {
  const double above = 100 * (path.simulated / path.estimated - 1);
  return fmt::format("{}, {:.2f} % {} the estimate's {}{}", formatSeconds(path.simulated),
                     std::abs(above), above < 0 ? "below" : "above", formatSeconds(path.estimated),
                     path.isAlone ? ", for a step that no other follows" : "");
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
