#include "planner/whatif/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/spec/load.h"
#include "planner/answer/report.h"
#include "planner/parts.h"
#include "planner/search/relax.h"
#include "planner/whatif/answers.h"
#include "planner/whatif/hardware.h"
#include "planner/whatif/values.h"

namespace trireme::planner {
namespace {

Result<Sweep> makeSweep(const SweepQuestion& asked) {
  Sweep sweep;
  std::vector<std::string> clusters;
  for (const std::string& name : asked.gpus) {
    TRIREME_ASSIGN_OR_RETURN(const std::string cluster, clusterOfGpu(name));
    const auto known = std::find(clusters.begin(), clusters.end(), cluster);
    if (known != clusters.end())
      return Error(invalidArgument(
          fmt::format("--gpu: '{}' and '{}' are the same system, {}: name it once",
                      asked.gpus[static_cast<size_t>(known - clusters.begin())], name, cluster)));
    clusters.push_back(cluster);
  }
  Question question = asked.question;
  if (question.cluster.empty()) question.cluster = clusters[0];
  if (!asked.axes.batch.empty()) question.batch = asked.axes.batch[0];
  if (!asked.axes.sequence.empty()) question.sequence = asked.axes.sequence[0];
  TRIREME_ASSIGN_OR_RETURN(sweep.base, makeQuery(question, asked.stack));
  sweep.base.pins = asked.pins;
  sweep.axes = asked.axes;
  sweep.axes.interNode = withoutRepeats(asked.axes.interNode);
  if (clusters.empty()) {
    sweep.hardware.push_back(
        {asked.question.cluster, sweep.base.cluster, sweep.base.training.precision});
    return sweep;
  }
  // As many devices of every kind as the cluster has, if nobody says how many.
  if (sweep.axes.gpus.empty() && !asked.question.cluster.empty())
    sweep.axes.gpus = {sweep.base.cluster.numDevices};
  for (size_t i = 0; i < clusters.size(); ++i) {
    TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec cluster, spec::loadCluster(clusters[i]));
    TRIREME_ASSIGN_OR_RETURN(const spec::TrainingSpec training,
                             trainingOf(question, sweep.base.stack, cluster.device));
    sweep.hardware.push_back({asked.gpus[i], std::move(cluster), training.precision});
  }
  return sweep;
}

nlohmann::json placeOf(const ComparedRows& compared, const std::optional<size_t>& found) {
  return found ? nlohmann::json(compared.places[*found]) : nlohmann::json();
}

// The rows of a sweep with what is found among them.
class JsonReport {
 public:
  explicit JsonReport(const Answers& answers)
      : answers_(answers), rows_(rowsOf(answers)), front_(frontOf(answers, rows_)) {
    for (const AnswerRow& row : rows_)
      if (answerOf(row).ok()) letters_.emplace(answerOf(row).shape, letters_.size());
    // In the order of the table, which has no letter for what lies beyond an answer.
    const auto name = [this](const AnswerRow& row) {
      if (answerOf(row).ok()) letters_.emplace(answerOf(row).shape, letters_.size());
    };
    for (const Refinement& refinement : answers_.refinements) name(refinement.row);
    for (const Refinement& refinement : answers_.refinements)
      if (refinement.beyond) name(*refinement.beyond);
  }
  nlohmann::json json() const;

 private:
  nlohmann::json rowJson(const AnswerRow& row) const;
  nlohmann::json conditionJson(const Condition& condition) const;
  nlohmann::json refinementJson(Refinement::Goal goal, double limit,
                                const Condition& condition) const;
  nlohmann::json deadlineJson(double deadline, const Condition& condition) const;
  nlohmann::json budgetJson(double budget, const Condition& condition) const;
  const PointAnswer& answerOf(const AnswerRow& row) const { return *answers_.answers[row.point]; }
  const SweepPoint& pointOf(const AnswerRow& row) const { return answers_.points[row.point]; }
  bool isOnFront(size_t row) const {
    return std::find(front_.begin(), front_.end(), row) != front_.end();
  }

  const Answers& answers_;
  std::vector<AnswerRow> rows_;
  std::vector<size_t> front_;
  std::map<std::string, size_t> letters_;  // of shapes, in the order in which they win
};

nlohmann::json JsonReport::rowJson(const AnswerRow& row) const {
  const SweepPoint& p = pointOf(row);
  const PointAnswer& a = answerOf(row);
  const Hardware& hardware = answers_.sweep.hardware[p.hardware];
  nlohmann::json json = {{"system", hardware.name},
                         {"precision", spec::precisionName(hardware.precision)},
                         {"gpus", p.gpus},
                         {"interNodeBytesPerSecond", p.interNode.count()},
                         {"batch", p.batch},
                         {"sequence", p.sequence},
                         {"minusNodes", p.minusNodes},
                         {"fits", a.ok()}};
  if (!a.ok()) {
    json["reason"] = a.reason;
    return json;
  }
  json["plan"] = a.plan;
  json["winner"] = letterOf(letters_.at(a.shape));
  json["shape"] = a.shape;
  json["gpusUsed"] = a.gpusUsed;
  json["nodesUsed"] = a.nodesUsed;
  json["stepSeconds"] = a.step.count();
  json["tokensPerSecond"] = a.tokensPerSecond;
  json["modelFlopsUtilisation"] = a.modelFlopsUtilisation;
  json["memoryBytes"] = a.memory.count();
  json["memoryTight"] = a.memoryTight;
  for (const BreakdownPart& part : breakdownParts(a.breakdown))
    json["breakdownSeconds"][part.name] = part.time.count();
  if (!row.economics) return json;
  const Economics& e = *row.economics;
  json["tokens"] = row.scenario.tokens;
  json["steps"] = e.steps;
  json["busySeconds"] = e.busy.count();
  json["wallSeconds"] = e.wall.count();
  if (row.scenario.price) json["usdPerGpuHour"] = *row.scenario.price;
  if (e.cost) json["costUsd"] = *e.cost;
  if (e.energy) json["energyJoules"] = *e.energy;
  if (!e.goodput) return json;
  json["failures"] = {{"gpuMeanBetweenSeconds", row.scenario.failures->deviceMeanBetween.count()},
                      {"jobMeanBetweenSeconds", e.goodput->rate.meanBetween.count()},
                      {"saveSeconds", e.goodput->rate.save.count()},
                      {"youngIntervalSeconds", e.goodput->young.count()},
                      {"dalyIntervalSeconds", e.goodput->interval.count()},
                      {"goodput", e.goodput->goodput},
                      {"spareNodes", e.goodput->spares},
                      {"spareNodesBought", e.goodput->bought},
                      {"availability", e.goodput->availability}};
  return json;
}

nlohmann::json JsonReport::conditionJson(const Condition& condition) const {
  nlohmann::json json = {{"tokens", condition.tokens}, {"minusNodes", condition.minusNodes}};
  if (condition.price) json["usdPerGpuHour"] = *condition.price;
  if (condition.mtbf) json["gpuMeanBetweenSeconds"] = *condition.mtbf;
  return json;
}

// null: nothing keeps to the limit.
nlohmann::json JsonReport::refinementJson(Refinement::Goal goal, double limit,
                                          const Condition& condition) const {
  const Refinement* r = answers_.refinement(goal, limit, condition);
  if (!r) return {};
  return {{"point", rowJson(r->row)},
          {"beyond", r->beyond ? rowJson(*r->beyond) : nlohmann::json()},
          {"planned", r->numPlanned}};
}

nlohmann::json JsonReport::deadlineJson(double deadline, const Condition& condition) const {
  const ComparedRows compared = comparedRows(answers_, rows_, condition);
  const bool hasPrice = !answers_.scenarios.price.empty();
  nlohmann::json json = conditionJson(condition);
  json["seconds"] = deadline;
  json["fewestDevices"] = placeOf(compared, fewestWithin(compared.outcomes, Seconds(deadline)));
  json["refined"] = refinementJson(Refinement::Goal::kFewest, deadline, condition);
  json["cheapestRefined"] = refinementJson(Refinement::Goal::kCheapest, deadline, condition);
  json["cheapest"] = placeOf(
      compared, hasPrice ? cheapestWithin(compared.outcomes, Seconds(deadline)) : std::nullopt);
  return json;
}

nlohmann::json JsonReport::budgetJson(double budget, const Condition& condition) const {
  const ComparedRows compared = comparedRows(answers_, rows_, condition);
  nlohmann::json json = conditionJson(condition);
  json["usd"] = budget;
  json["fastest"] = placeOf(compared, fastestFor(compared.outcomes, budget));
  json["refined"] = refinementJson(Refinement::Goal::kFastest, budget, condition);
  return json;
}

nlohmann::json JsonReport::json() const {
  nlohmann::json json;
  json["model"] = answers_.sweep.base.model.name;
  json["stack"] = answers_.sweep.base.stack.name;
  json["points"] = nlohmann::json::array();
  for (size_t i = 0; i < rows_.size(); ++i) {
    json["points"].push_back(rowJson(rows_[i]));
    const std::optional<Economics>& economics = rows_[i].economics;
    if (economics && economics->cost) json["points"].back()["onFront"] = isOnFront(i);
  }
  const std::vector<Condition> conditions = conditionsOf(answers_, rows_);
  for (const double deadline : answers_.scenarios.deadlines)
    for (const Condition& condition : conditions)
      json["deadlines"].push_back(deadlineJson(deadline, condition));
  for (const double budget : answers_.scenarios.budgets)
    for (const Condition& condition : conditions)
      json["budgets"].push_back(budgetJson(budget, condition));
  return json;
}

// Why the first point has no plan, with what would give it one if its search is what failed.
Result<std::string> firstReason(const Answers& answers, const LoadStacks& stacks,
                                const SearchProgress& progress) {
  const Result<Query> query = queryAt(answers.sweep, answers.points[0]);
  if (!query.has_value()) return query.error().message();
  const Result<PlanResult> result = searchPlan(*query, modelCosts(*query), progress);
  if (result.has_value() || result.error().code() != StatusCode::kInfeasible)
    return answers.answers[0]->reason;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<spec::StackProfile> others, stacks());
  TRIREME_ASSIGN_OR_RETURN(const Shortfall shortfall,
                           shortfallOf(*query, result.error(), others, progress));
  return toStatus(shortfall).message();
}

}  // namespace

std::vector<std::string> caveatsOf(const Sweep& sweep) {
  std::vector<std::string> caveats;
  for (const Hardware& hardware : sweep.hardware)
    for (std::string& caveat : caveatsOf(sweep.base.stack, hardware.cluster.device))
      if (std::find(caveats.begin(), caveats.end(), caveat) == caveats.end())
        caveats.push_back(std::move(caveat));
  return caveats;
}

Status checkScenarios(const ScenarioAxes& s) {
  const auto needs = [](bool isGiven, const char* what, bool hasNeeded, const char* needed) {
    return isGiven && !hasNeeded ? invalidArgument(fmt::format("{} needs {}", what, needed))
                                 : Status();
  };
  const bool hasTokens = !s.tokens.empty(), hasFailures = !s.mtbf.empty();
  TRIREME_RETURN_IF_ERROR(needs(!s.price.empty(), "--price", hasTokens, "--tokens"));
  TRIREME_RETURN_IF_ERROR(needs(!s.power.empty(), "--power", hasTokens, "--tokens"));
  TRIREME_RETURN_IF_ERROR(needs(!s.deadlines.empty(), "--deadline", hasTokens, "--tokens"));
  TRIREME_RETURN_IF_ERROR(needs(!s.budgets.empty(), "--budget", !s.price.empty(), "--price"));
  TRIREME_RETURN_IF_ERROR(needs(hasFailures, "--mtbf", hasTokens, "--tokens"));
  TRIREME_RETURN_IF_ERROR(
      needs(s.checkpointBandwidth > 0, "--checkpoint-bandwidth", hasFailures, "--mtbf"));
  TRIREME_RETURN_IF_ERROR(needs(s.restart.has_value(), "--restart", hasFailures, "--mtbf"));
  TRIREME_RETURN_IF_ERROR(needs(s.repair.has_value(), "--repair", hasFailures, "--mtbf"));
  TRIREME_RETURN_IF_ERROR(
      needs(s.spares.has_value(), "--spares", s.repair.has_value(), "--repair"));
  if (hasFailures && (!(s.checkpointBandwidth > 0) || !s.restart))
    return invalidArgument(
        "--mtbf needs --checkpoint-bandwidth, to know what saving takes, and --restart");
  if (s.spares.value_or(0) > spec::kMaxDevices)
    return invalidArgument(
        fmt::format("--spares: must be at most {}, the devices of a cluster, "
                    "got {}",
                    spec::kMaxDevices, *s.spares));
  return {};
}

namespace {

// Points are searched, each in milliseconds; rows are printed, and compared for every limit.
constexpr double kMostPoints = 1e6, kMostRows = 1e6;

template <typename... T>
double combinations(const std::vector<T>&... values) {
  return (1.0 * ... * static_cast<double>(std::max<size_t>(values.size(), 1)));
}

Status checkSize(const Sweep& sweep, const ScenarioAxes& s) {
  const SweepAxes& axes = sweep.axes;
  const double points = combinations(sweep.hardware, axes.gpus, axes.interNode, axes.batch,
                                     axes.sequence, axes.minusNodes);
  if (points > kMostPoints)
    return invalidArgument(
        fmt::format("the flags make {:.0f} points, more than {:.0f}: give "
                    "shorter ranges or longer steps",
                    points, kMostPoints));
  const double scenarios = combinations(s.tokens, s.price, s.power, s.mtbf);
  if (points * scenarios > kMostRows)
    return invalidArgument(fmt::format(
        "{:.0f} points under {:.0f} combinations of tokens, prices, power and MTBF make more than "
        "{:.0f} rows: give fewer values",
        points, scenarios, kMostRows));
  return {};
}

}  // namespace

Result<Answers> makeAnswers(const SweepQuestion& asked) {
  const ScenarioAxes& s = asked.scenarios;
  if (asked.question.cluster.empty() && asked.gpus.empty())
    return Error(invalidArgument("the cluster is missing: give --cluster, or --gpu"));
  TRIREME_RETURN_IF_ERROR(checkScenarios(s));
  Answers answers;
  TRIREME_ASSIGN_OR_RETURN(answers.sweep, makeSweep(asked));
  TRIREME_RETURN_IF_ERROR(checkSize(answers.sweep, s));
  answers.points = pointsOf(answers.sweep);
  answers.answers.resize(answers.points.size());
  answers.scenarios = s;
  const size_t kinds = asked.gpus.size();
  ScenarioAxes& own = answers.scenarios;
  own.pricePerHardware = kinds > 1 && s.price.size() == kinds && !s.priceIsRange;
  own.powerPerHardware = kinds > 1 && s.power.size() == kinds && !s.powerIsRange;
  if (!own.pricePerHardware) own.price = withoutRepeats(s.price);
  if (!own.powerPerHardware) own.power = withoutRepeats(s.power);
  for (std::vector<double>* values : {&own.tokens, &own.mtbf, &own.deadlines, &own.budgets})
    *values = withoutRepeats(*values);
  return answers;
}

Status checkAnswered(const Answers& answers, const LoadStacks& stacks,
                     const SearchProgress& progress) {
  if (std::any_of(answers.answers.begin(), answers.answers.end(),
                  [](const std::optional<PointAnswer>& answer) { return answer->ok(); }))
    return {};
  TRIREME_ASSIGN_OR_RETURN(const std::string reason, firstReason(answers, stacks, progress));
  if (answers.numSwept() == 1) return infeasible(reason);
  return infeasible(
      fmt::format("no point of {} has a plan; the first: {}", answers.numSwept(), reason));
}

nlohmann::json toJson(const Answers& answers) { return JsonReport(answers).json(); }

}  // namespace trireme::planner
