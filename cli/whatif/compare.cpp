#include "cli/whatif/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/html_report/html_report.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/output/wrap.h"
#include "cli/whatif/report.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"
#include "planner/check.h"
#include "planner/report.h"
#include "planner/search.h"
#include "planner/supported.h"

namespace trireme::cli {
namespace {

using planner::Query;

enum class SideKind : uint8_t { kCluster, kStack, kPlan };
constexpr const char* kSideNames[] = {"cluster", "stack", "plan"};

Result<SideKind> kindOf(const std::string& name) {
  if (spec::findShipped(spec::ShippedKind::kCluster, name)) return SideKind::kCluster;
  if (spec::findShipped(spec::ShippedKind::kStack, name)) return SideKind::kStack;
  if (plan::loadPlan(name).has_value()) return SideKind::kPlan;
  if (spec::loadStack(name).has_value()) return SideKind::kStack;
  const Result<spec::ClusterSpec> cluster = spec::loadCluster(name);
  if (cluster.has_value()) return SideKind::kCluster;
  return Error(
      invalidArgument(fmt::format("--diff: '{}' is no cluster, stack or plan; as a cluster: {}",
                                  name, cluster.error().message())));
}

Result<Query> queryOf(const CompareOptions& options, SideKind kind, const std::string& name) {
  QueryOptions question = options.question;
  (kind == SideKind::kCluster ? question.cluster : question.stack) = name;
  if (question.cluster.empty())
    return Error(invalidArgument("--diff of two stacks needs --cluster"));
  TRIREME_ASSIGN_OR_RETURN(Query query, loadQuery(question));
  query.pins = options.pins;
  TRIREME_RETURN_IF_ERROR(growCluster(options.pins.gpus, question.cluster, query.cluster));
  return query;
}

Result<planner::Side> planSide(const CompareOptions& options, const std::string& name) {
  if (options.question.cluster.empty())
    return Error(invalidArgument("--diff of two plans needs --cluster, to price them on"));
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.question.model));
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(options.question.cluster));
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack,
                           loadStackOrDefault(options.question.stack));
  TRIREME_ASSIGN_OR_RETURN(plan::Plan plan, plan::loadPlan(name));
  if (plan.stack != stack.name)
    return Error(invalidArgument(fmt::format(
        "{}: the plan was made for stack '{}': give it with --stack", name, plan.stack)));
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, model).withContext(name));
  TRIREME_RETURN_IF_ERROR(planner::checkSupported(plan, stack).withContext(name));
  TRIREME_RETURN_IF_ERROR(growCluster(plan.numRanks(), options.question.cluster, cluster));
  TRIREME_ASSIGN_OR_RETURN(cost::Estimate estimate, cost::estimate(model, plan, cluster, stack));
  return planner::Side{name, std::move(plan), std::move(estimate)};
}

// "memory bandwidth 2.039 -> 3.35 TB/s (x 1.64)" of all that is not the same.
std::vector<std::string> changesOf(const Query& from, const Query& to) {
  const spec::ClusterSpec &a = from.cluster, &b = to.cluster;
  std::vector<std::string> lines;
  const auto add = [&](const std::string& what, const auto& before, const auto& after) {
    if (before == after || !(before.count() > 0)) return;
    lines.push_back(fmt::format("{} {} -> {} (x {:.3g})", what, spec::printQuantity(before),
                                spec::printQuantity(after), after / before));
  };
  const spec::PeakRate* before = a.device.peak(spec::linearFormat(from.training.precision));
  const spec::PeakRate* after = b.device.peak(spec::linearFormat(to.training.precision));
  if (before && after) add("matmul rate", before->rate, after->rate);
  add("memory bandwidth", a.device.memoryBandwidth, b.device.memoryBandwidth);
  add("memory", a.device.memory, b.device.memory);
  for (size_t i = 0; i < std::min(a.tiers.size(), b.tiers.size()); ++i)
    add(a.tiers[i].name + " bandwidth", a.tiers[i].bandwidth, b.tiers[i].bandwidth);
  if (a.device.name != b.device.name)
    lines.insert(lines.begin(), fmt::format("device {} -> {}", a.device.name, b.device.name));
  return lines;
}

// So many units, in milliseconds with all digits that a unit has.
std::string changeText(int64_t units, Seconds unit) {
  const auto digits = static_cast<int>(std::max(0.0, std::round(-std::log10(unit.count() * 1e3))));
  return fmt::format("{:+.{}f} ms", static_cast<double>(units) * unit.count() * 1e3, digits);
}

nlohmann::json toJson(const planner::Difference& d) {
  nlohmann::json json;
  for (const planner::DifferencePart& part : d.parts)
    json["parts"].push_back({{"name", part.name},
                             {"beforeSeconds", part.before.count()},
                             {"afterSeconds", part.after.count()},
                             {"changeUnits", part.change}});
  json["unitSeconds"] = d.unit.count();
  json["changeUnits"] = d.change;
  for (const planner::Side* side : {&d.before, &d.after})
    json[side == &d.before ? "before" : "after"] = {{"name", side->name},
                                                    {"plan", plan::printPlan(side->plan)},
                                                    {"fits", side->estimate.fits()},
                                                    {"stepSeconds", side->estimate.step.count()}};
  json["samePlanSeconds"] = d.samePlan ? nlohmann::json(d.samePlan->count()) : nlohmann::json();
  return json;
}

}  // namespace

std::string toTable(const planner::Difference& d, const std::string& what) {
  std::vector<std::vector<std::string>> rows;
  for (const planner::DifferencePart& part : d.parts)
    rows.push_back({part.name, formatSeconds(part.before), formatSeconds(part.after),
                    changeText(part.change, d.unit)});
  rows.push_back({"step", formatSeconds(d.before.estimate.step),
                  formatSeconds(d.after.estimate.step), changeText(d.change, d.unit)});
  std::string text =
      printTable({{"part"}, {"before", true}, {"after", true}, {"change", true}}, rows);
  for (const planner::Side* side : {&d.before, &d.after})
    text += wrapLine(
        fmt::format("{:<14}{}: {}{}", side == &d.before ? "before" : "after", side->name,
                    planner::summary(side->plan),
                    side->estimate.fits() ? ""
                                          : fmt::format("; does not fit, {} too much",
                                                        formatBytes(side->estimate.missing()))),
        14);
  if (!d.samePlan) {
    if (what != "plan")
      text += wrapLine(
          fmt::format("{:<14}the plan of before is not possible or does not fit after", "why"), 14);
    return text;
  }
  const int64_t first = std::llround((*d.samePlan - d.before.estimate.step) / d.unit);
  return text +
         wrapLine(fmt::format("{:<14}{} {}: the plan of before would take {} there; {} "
                              "another plan",
                              "why", changeText(first, d.unit), what, formatSeconds(*d.samePlan),
                              changeText(d.change - first, d.unit)),
                  14);
}

Result<int> runCompare(const CompareOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const SideKind kind, kindOf(options.before));
  TRIREME_ASSIGN_OR_RETURN(const SideKind other, kindOf(options.after));
  if (kind != other)
    return Error(
        invalidArgument(fmt::format("--diff compares two of a kind: '{}' is a {}, '{}' a {}",
                                    options.before, kSideNames[static_cast<size_t>(kind)],
                                    options.after, kSideNames[static_cast<size_t>(other)])));
  std::optional<planner::Difference> difference;
  std::vector<std::string> changes;
  for (const auto& [side, flag, value] :
       {std::tuple(SideKind::kCluster, "--cluster", &options.question.cluster),
        std::tuple(SideKind::kStack, "--stack", &options.question.stack)})
    if (kind == side && !value->empty())
      return Error(invalidArgument(fmt::format("--diff of two {}s names them: leave {} away",
                                               kSideNames[static_cast<size_t>(side)], flag)));
  if (kind == SideKind::kPlan && !(options.pins == planner::Pins{}))
    return Error(invalidArgument(
        "--diff of two plans: they say themselves what --gpus, --tp... would; leave those away"));
  if (kind == SideKind::kPlan) {
    TRIREME_ASSIGN_OR_RETURN(planner::Side before, planSide(options, options.before));
    TRIREME_ASSIGN_OR_RETURN(planner::Side after, planSide(options, options.after));
    difference = planner::differenceOf(std::move(before), std::move(after));
  } else {
    TRIREME_ASSIGN_OR_RETURN(const Query before, queryOf(options, kind, options.before));
    TRIREME_ASSIGN_OR_RETURN(const Query after, queryOf(options, kind, options.after));
    TRIREME_ASSIGN_OR_RETURN(difference,
                             planner::compareQueries(options.before, before, options.after, after));
    changes = changesOf(before, after);
    if (before.training.precision != after.training.precision)
      changes.push_back(fmt::format("precision {} -> {}",
                                    spec::precisionName(before.training.precision),
                                    spec::precisionName(after.training.precision)));
  }
  std::string text = toTable(*difference, kSideNames[static_cast<size_t>(kind)]);
  for (const std::string& line : changes) text += wrapLine("  " + line, 4);
  nlohmann::json json = toJson(*difference);
  json["changes"] = changes;
  const std::string title =
      fmt::format("{} and {}", difference->before.name, difference->after.name);
  TRIREME_RETURN_IF_ERROR(writeReport(options.report, {"difference", title, "", text}, json));
  if (options.json) text = json.dump(2) + "\n";
  fmt::print("{}", text);
  return kExitOk;
}

Result<int> runWorth(const Answers& answers, const std::string& report, bool json) {
  if (answers.points.size() != 1)
    return Error(invalidArgument(
        fmt::format("--worth looks around one point, and these flags have {}: give each one value",
                    answers.points.size())));
  TRIREME_ASSIGN_OR_RETURN(const Query query, planner::queryAt(answers.sweep, answers.points[0]));
  TRIREME_ASSIGN_OR_RETURN(const planner::PlanResult result, planner::searchPlan(query));
  Progress progress;
  TRIREME_ASSIGN_OR_RETURN(
      const std::vector<planner::Sensitivity> changes,
      planner::sensitivitiesOf(query, result, [&](double done, const std::string& what) {
        progress.update(done, what);
      }));
  progress.clear();
  const std::optional<planner::Economics> economics = rowsOf(answers, 0)[0].economics;
  nlohmann::json list = nlohmann::json::array();
  std::vector<std::vector<std::string>> rows;
  for (const planner::Sensitivity& s : changes) {
    // The same tokens take less time by as much as more of them go through in a second.
    const double saved = 1 - 1 / (1 + s.gain);
    std::optional<double> money;
    if (economics && economics->cost) money = *economics->cost * saved / s.amount;
    rows.push_back({s.change, fmt::format("{:.4g} {}", s.amount, s.unit), formatSeconds(s.step),
                    fmt::format("{:+.2f} %", 100 * s.gain),
                    fmt::format("{:+.4f} %", 100 * s.gain / s.amount),
                    money ? formatCount(*money) : "", s.samePlan ? "same" : "new"});
    list.push_back({{"change", s.change},
                    {"amount", s.amount},
                    {"unit", s.unit},
                    {"stepSeconds", s.step.count()},
                    {"gain", s.gain},
                    {"gainPerUnit", s.gain / s.amount},
                    {"usdPerUnit", money ? nlohmann::json(*money) : nlohmann::json()},
                    {"samePlan", s.samePlan}});
  }
  std::vector<Column> columns = {
      {"change"},         {"that is", true},    {"step", true}, {"tokens/s", true},
      {"per unit", true}, {"USD a unit", true}, {"plan"}};
  if (!economics || !economics->cost) {
    columns.erase(columns.begin() + 5);
    for (auto& row : rows) row.erase(row.begin() + 5);
  }
  const std::string text = toTable(answers) + printTable(columns, rows);
  TRIREME_RETURN_IF_ERROR(writeReport(
      report, {"worth", answers.sweep.base.model.name, questionOf(answers), text}, list));
  fmt::print("{}", json ? list.dump(2) + "\n" : text);
  return kExitOk;
}

}  // namespace trireme::cli
