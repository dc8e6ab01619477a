#include "planner/whatif/rows.h"

#include <algorithm>
#include <limits>

namespace trireme::planner {
namespace {

std::vector<std::optional<double>> optionsOf(const std::vector<double>& values, bool perHardware,
                                             size_t hardware) {
  if (values.empty()) return {std::nullopt};
  if (perHardware) return {values[hardware]};
  return {values.begin(), values.end()};
}

std::vector<Scenario> scenariosOf(const ScenarioAxes& axes, size_t hardware) {
  std::vector<Scenario> scenarios;
  for (const auto& tokens : optionsOf(axes.tokens, false, hardware))
    for (const auto& price : optionsOf(axes.price, axes.pricePerHardware, hardware))
      for (const auto& power : optionsOf(axes.power, axes.powerPerHardware, hardware))
        for (const auto& mtbf : optionsOf(axes.mtbf, false, hardware)) {
          Scenario scenario;
          scenario.tokens = tokens.value_or(0);
          scenario.price = price;
          if (power) scenario.power = Watts(*power);
          if (mtbf) {
            FailureModel& model = scenario.failures.emplace();
            model.deviceMeanBetween = Seconds(*mtbf);
            model.checkpointBandwidth = BytesPerSecond(axes.checkpointBandwidth);
            model.restart = Seconds(axes.restart.value_or(0));
            if (axes.repair) model.repair = Seconds(*axes.repair);
            model.spares = axes.spares;
          }
          scenarios.push_back(std::move(scenario));
        }
  return scenarios;
}

}  // namespace

Training trainingOf(const Answers& answers, size_t index) {
  const SweepPoint& point = answers.points[index];
  const Hardware& hardware = answers.sweep.hardware[point.hardware];
  const int64_t perNode = devicesPerNode(hardware.cluster);
  Training training;
  training.step = answers.answers[index]->step;
  training.tokensPerStep = point.batch * point.sequence;
  training.gpus = presentDevices(answers.sweep, point);
  training.used = answers.answers[index]->gpusUsed;
  training.nodesUsed = answers.answers[index]->nodesUsed;
  training.perNode = std::min(perNode, training.gpus);
  training.checkpoint =
      checkpointBytes(answers.sweep.base.model.numParameters(), answers.sweep.base.stack,
                      hardware.precision, hardware.cluster.device);
  training.power = hardware.cluster.device.power;
  return training;
}

const Refinement* Answers::refinement(Refinement::Goal goal, double limit,
                                      const Condition& condition) const {
  for (const Refinement& r : refinements)
    if (r.goal == goal && r.limit == limit && r.condition == condition) return &r;
  return nullptr;
}

std::string letterOf(size_t index) {
  std::string text(1, static_cast<char>('A' + index % 26));
  return index < 26 ? text : letterOf(index / 26 - 1) + text;
}

std::vector<AnswerRow> rowsOf(const Answers& answers, size_t point) {
  std::vector<AnswerRow> rows;
  if (!answers.answers[point]) return rows;
  for (Scenario& scenario : scenariosOf(answers.scenarios, answers.points[point].hardware)) {
    AnswerRow row{point, std::move(scenario), std::nullopt};
    if (answers.answers[point]->ok() && row.scenario.tokens > 0)
      row.economics = economicsOf(trainingOf(answers, point), row.scenario);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<AnswerRow> rowsOf(const Answers& answers) {
  std::vector<AnswerRow> rows;
  for (size_t i = 0; i < answers.numSwept(); ++i)
    for (AnswerRow& row : rowsOf(answers, i)) rows.push_back(std::move(row));
  return rows;
}

Condition conditionOf(const Answers& answers, const AnswerRow& row) {
  Condition condition;
  condition.tokens = row.scenario.tokens;
  if (!answers.scenarios.pricePerHardware) condition.price = row.scenario.price;
  if (row.scenario.failures) condition.mtbf = row.scenario.failures->deviceMeanBetween.count();
  condition.minusNodes = answers.points[row.point].minusNodes;
  return condition;
}

std::vector<Condition> conditionsOf(const Answers& answers, const std::vector<AnswerRow>& rows) {
  std::vector<Condition> conditions;
  for (const AnswerRow& row : rows)
    if (const Condition c = conditionOf(answers, row);
        std::find(conditions.begin(), conditions.end(), c) == conditions.end())
      conditions.push_back(c);
  return conditions;
}

ComparedRows comparedRows(const Answers& answers, const std::vector<AnswerRow>& rows,
                          const Condition& condition) {
  ComparedRows compared;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::optional<Economics>& e = rows[i].economics;
    if (!e || !(conditionOf(answers, rows[i]) == condition)) continue;
    // What never ends has no cost, whatever its price.
    const double unknown = rows[i].scenario.price ? std::numeric_limits<double>::infinity() : 0;
    compared.places.push_back(i);
    compared.outcomes.push_back({presentDevices(answers.sweep, answers.points[rows[i].point]),
                                 e->wall, e->cost.value_or(unknown)});
  }
  return compared;
}

std::vector<size_t> frontOf(const Answers& answers, const std::vector<AnswerRow>& rows) {
  std::vector<size_t> front;
  for (const Condition& condition : conditionsOf(answers, rows)) {
    const ComparedRows compared = comparedRows(answers, rows, condition);
    for (const size_t i : paretoFront(compared.outcomes))
      if (rows[compared.places[i]].economics->cost) front.push_back(compared.places[i]);
  }
  return front;
}

}  // namespace trireme::planner
