#include "planner/whatif/rows.h"

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

Training trainingOf(const Answers& answers, size_t index) {
  const SweepPoint& point = answers.points[index];
  const Hardware& hardware = answers.sweep.hardware[point.hardware];
  const int64_t perNode = devicesPerNode(hardware.cluster);
  Training training;
  training.step = answers.answers[index]->step;
  training.tokensPerStep = point.batch * point.sequence;
  training.gpus = presentDevices(answers.sweep, point);
  training.perNode = std::min(perNode, training.gpus);
  training.checkpoint = checkpointBytes(answers.sweep.base.model.numParameters(),
                                        byteSize(spec::stateDType(hardware.precision)));
  training.used = answers.answers[index]->gpusUsed;
  training.power = hardware.cluster.device.power;
  return training;
}

}  // namespace

const Refinement* Answers::refinement(Refinement::Goal goal, double limit) const {
  for (const Refinement& r : refinements)
    if (r.goal == goal && r.limit == limit) return &r;
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

}  // namespace trireme::planner
