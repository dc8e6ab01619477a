#include "cli/whatif/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/html_report/html_report.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/output/wrap.h"
#include "cli/whatif/compared.h"
#include "cli/whatif/report.h"
#include "ir/base/format.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/answer/check.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "planner/search/search.h"
#include "planner/supported.h"
#include "planner/whatif/changes.h"

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
  // A damaged file is told by a key that only its kind has.
  const Result<std::string> text = spec::readFile(name);
  const auto hasKey = [&](const std::string& key) {
    return text.has_value() &&
           (text->starts_with(key + ":") || text->find("\n" + key + ":") != std::string::npos);
  };
  if (hasKey("tp")) return Error(plan::loadPlan(name).error());
  if (hasKey("programs")) return Error(spec::loadStack(name).error());
  if (hasKey("tiers")) return Error(cluster.error());
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

struct PlanSide {
  planner::Side side;
  Query query;
};

Result<PlanSide> planSide(const CompareOptions& options, const std::string& name) {
  const QueryOptions& question = options.question;
  if (question.cluster.empty())
    return Error(invalidArgument("--diff of two plans needs --cluster, to price them on"));
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(question.model));
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(question.cluster));
  TRIREME_ASSIGN_OR_RETURN(plan::Plan plan, plan::loadPlan(name));
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack,
                           planner::stackFor(plan, name, question.stack));
  if (const std::string note = planner::otherStackNote(plan, name, stack); !note.empty())
    return Error(invalidArgument(fmt::format("{}; leave out --stack", note)));
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, model).withContext(name));
  TRIREME_RETURN_IF_ERROR(growCluster(plan.numRanks(), question.cluster, cluster));
  Query query = planner::queryOf(plan, model, cluster, stack);
  TRIREME_RETURN_IF_ERROR(
      planner::checkSupported(plan, query.model, query.stack).withContext(name));
  TRIREME_ASSIGN_OR_RETURN(cost::Estimate estimate,
                           cost::estimate(model, plan, query.cluster, query.stack));
  return PlanSide{{name, std::move(plan), std::move(estimate)}, std::move(query)};
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
  json["noSamePlan"] = d.noSamePlan.empty() ? nlohmann::json() : nlohmann::json(d.noSamePlan);
  return json;
}

struct Comparison {
  planner::Difference difference;
  std::string question;              // lines above the table
  std::vector<std::string> changes;  // and below
  nlohmann::json before, after;      // what was asked of each side
};

Comparison comparisonOf(planner::Difference difference, const Query& before, const Query& after) {
  return {std::move(difference), comparedQuestion(before, after), comparedChanges(before, after),
          comparedJson(before), comparedJson(after)};
}

nlohmann::json toJson(const Comparison& comparison) {
  nlohmann::json json = toJson(comparison.difference);
  json["changes"] = comparison.changes;
  json["before"]["question"] = comparison.before;
  json["after"]["question"] = comparison.after;
  return json;
}

// Each flag says what the sides do not.
Status checkFlags(const CompareOptions& options, SideKind kind) {
  for (const auto& [side, flag, value] :
       {std::tuple(SideKind::kCluster, "--cluster", &options.question.cluster),
        std::tuple(SideKind::kStack, "--stack", &options.question.stack)})
    if (kind == side && !value->empty())
      return invalidArgument(fmt::format("--diff of two {}s names them: leave {} away",
                                         kSideNames[static_cast<size_t>(side)], flag));
  if (kind == SideKind::kPlan && !(options.pins == planner::Pins{}))
    return invalidArgument(
        "--diff of two plans: they say themselves what --gpus, --tp... would; leave those away");
  const QueryOptions& question = options.question;
  if (kind == SideKind::kPlan &&
      (question.batch || question.sequence || question.precision || !question.training.empty()))
    return invalidArgument(
        "--diff of two plans: they say how they train; leave --batch, --seq, --precision and "
        "--train away");
  return {};
}

Result<Comparison> comparePlans(const CompareOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(const PlanSide before, planSide(options, options.before));
  TRIREME_ASSIGN_OR_RETURN(const PlanSide after, planSide(options, options.after));
  Comparison comparison =
      comparisonOf(planner::differenceOf(before.side, after.side), before.query, after.query);
  for (std::string& line : planner::planChanges(before.side.plan, after.side.plan))
    comparison.changes.push_back(std::move(line));
  return comparison;
}

Result<Comparison> compareSides(const CompareOptions& options, SideKind kind) {
  TRIREME_ASSIGN_OR_RETURN(const Query before, queryOf(options, kind, options.before));
  TRIREME_ASSIGN_OR_RETURN(const Query after, queryOf(options, kind, options.after));
  TRIREME_ASSIGN_OR_RETURN(planner::Difference difference,
                           planner::compareQueries(options.before, before, options.after, after));
  return comparisonOf(std::move(difference), before, after);
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
  if (!d.noSamePlan.empty())
    text += wrapLine(fmt::format("{:<14}the plan of before {}", "why", d.noSamePlan), 14);
  if (!d.samePlan) return text;
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
  TRIREME_RETURN_IF_ERROR(checkFlags(options, kind));
  TRIREME_ASSIGN_OR_RETURN(const Comparison comparison, kind == SideKind::kPlan
                                                            ? comparePlans(options)
                                                            : compareSides(options, kind));
  const planner::Difference& difference = comparison.difference;
  std::string text =
      comparison.question + toTable(difference, kSideNames[static_cast<size_t>(kind)]);
  for (const std::string& line : comparison.changes) text += wrapLine("  " + line, 4);
  const nlohmann::json json = toJson(comparison);
  const std::string title = fmt::format("{} and {}", difference.before.name, difference.after.name);
  TRIREME_RETURN_IF_ERROR(
      writeReport(options.report, {"difference", title, comparison.question, text}, json));
  if (options.json) text = jsonText(json) + "\n";
  fmt::print("{}", text);
  return kExitOk;
}

Status checkWorth(const Answers& answers) {
  if (answers.points.size() != 1)
    return invalidArgument(
        fmt::format("--worth looks around one point, and these flags have {}: give each one value",
                    answers.points.size()));
  const planner::ScenarioAxes& s = answers.scenarios;
  for (const auto& [flag, values] :
       {std::pair("--tokens", &s.tokens), std::pair("--price", &s.price),
        std::pair("--power", &s.power), std::pair("--mtbf", &s.mtbf)})
    if (values->size() > 1)
      return invalidArgument(fmt::format(
          "--worth says what a unit is worth under one scenario: {} has {} values; give one", flag,
          values->size()));
  return {};
}

Result<int> runWorth(const Answers& answers, const std::string& report, bool json) {
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
  fmt::print("{}", json ? jsonText(list) + "\n" : text);
  return kExitOk;
}

}  // namespace trireme::cli
