#include "planner/answer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "cost_models/formulas.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/answer/table_lines.h"
#include "planner/certainty.h"
#include "planner/cuts/cuts.h"
#include "planner/parts.h"
#include "planner/plan_text.h"

namespace trireme::planner {
namespace {

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

std::string rangeText(const cost::TimeRange& range) {
  return fmt::format("{} to {}", formatSeconds(range.low), formatSeconds(range.high));
}

void appendInterval(std::string& out, const cost::Interval& interval) {
  appendField(out, "interval",
              fmt::format("{} for nine of ten runs like those compared{}{}", rangeText(interval),
                          interval.isOfOtherDevices ? ", on their GPUs" : "",
                          interval.ofOthers ? "" : "; fewer of others"));
  if (interval.ofOthers)
    appendField(out, "  of others", rangeText(*interval.ofOthers) + " for nine of ten");
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
  if (e.interval) appendInterval(out, *e.interval);
  appendTimes(out, plan, e);
  appendField(
      out, "memory",
      fmt::format("{} of {} on stage {}, the fullest{}{}", formatBytes(e.memory.total()),
                  formatBytes(e.memoryAvailable), e.memory.stage,
                  e.headroom > Bytes(0) ? "; " + formatBytes(e.headroom) + " kept free" : "",
                  isTight(e) ? "; tight: " + doubtText(e) : ""));
  appendMemory(out, e);
}

// Of a plan that does not fit, also whether the changed one does.
std::string changeLine(const Alternative& a, const cost::Estimate& chosen) {
  const bool fits = a.outcome != Outcome::kForbidden && a.outcome != Outcome::kDoesNotFit;
  return toLine(a) + (fits && !chosen.fits() ? "; fits" : "");
}

// Whether the plan, which fits, is faster than a bound that holds for it.
bool isRuledOut(const PlanCheck& check) {
  constexpr double kRounding = 1 - 1e-9;
  const Certificate& certificate = check.optimum->certificate;
  return check.estimate.step < certificate.bound * kRounding &&
         (!certificate.ofEvenChunks || hasEvenChunks(check.plan));
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
                     formatSeconds(behind * -1),
                     !check.estimate.fits() ? ", but does not fit"
                     : isRuledOut(check)    ? "; its certificate rules that out: a fault of the "
                                              "planner, please report it"
                                            : "");
}

}  // namespace

bool isBeyond(const PlanResult& result) {
  return result.certificate.ofEvenChunks && !hasEvenChunks(result.plan);
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

// What makes that plan the answer.
static std::string flagForRoom(const cost::Estimate& e) {
  return e.memoryOfStages.empty()
             ? fmt::format("; the answer with --headroom {:.0f}%", 100 * e.memoryDoubt)
             : "";
}

std::string toTable(const Roomier& roomier, const PlanResult& tight) {
  std::string text =
      fmt::format("none: no plan leaves {} of memory free", certainRoomText(tight.estimate));
  if (roomier.plan) {
    const auto& [plan, estimate] = *roomier.plan;
    text = fmt::format("{}, +{:.1f} %, {}: {}{}", formatSeconds(estimate.step),
                       100 * (estimate.step / tight.estimate.step - 1),
                       formatBytes(estimate.memory.total()), summary(plan),
                       flagForRoom(tight.estimate));
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

}  // namespace trireme::planner
