#include "cli/whatif/answers.h"

namespace trireme::cli {
namespace {

std::vector<std::optional<double>> optionsOf(const std::vector<double>& values, bool perHardware,
                                             size_t hardware) {
  if (values.empty()) return {std::nullopt};
  if (perHardware) return {values[hardware]};
  return {values.begin(), values.end()};
}

std::vector<planner::Scenario> scenariosOf(const ScenarioAxes& axes, size_t hardware) {
  std::vector<planner::Scenario> scenarios;
  for (const auto& tokens : optionsOf(axes.tokens, false, hardware))
    for (const auto& price : optionsOf(axes.price, axes.pricePerHardware, hardware))
      for (const auto& power : optionsOf(axes.power, axes.powerPerHardware, hardware))
        for (const auto& mtbf : optionsOf(axes.mtbf, false, hardware)) {
          planner::Scenario scenario;
          scenario.tokens = tokens.value_or(0);
          scenario.price = price;
          if (power) scenario.power = Watts(*power);
          if (mtbf) {
            planner::FailureModel& model = scenario.failures.emplace();
            model.deviceMeanBetween = Seconds(*mtbf);
            model.checkpointBandwidth = BytesPerSecond(axes.checkpointBandwidth);
            model.restart = Seconds(axes.restart);
            if (axes.repair) model.repair = Seconds(*axes.repair);
            model.spares = axes.spares;
          }
          scenarios.push_back(std::move(scenario));
        }
  return scenarios;
}

planner::Training trainingOf(const Answers& answers, size_t index) {
  const planner::SweepPoint& point = answers.points[index];
  const planner::Hardware& hardware = answers.sweep.hardware[point.hardware];
  const int64_t perNode = planner::devicesPerNode(hardware.cluster);
  planner::Training training;
  training.step = answers.answers[index]->step;
  training.tokensPerStep = point.batch * point.sequence;
  training.gpus = planner::presentDevices(answers.sweep, point);
  training.perNode = std::min(perNode, training.gpus);
  training.checkpoint = planner::checkpointBytes(answers.sweep.base.model.numParameters(),
                                                 byteSize(spec::stateDType(hardware.precision)));
  training.power = hardware.cluster.device.power;
  return training;
}

}  // namespace

std::vector<AnswerRow> rowsOf(const Answers& answers, size_t point) {
  std::vector<AnswerRow> rows;
  if (!answers.answers[point]) return rows;
  for (planner::Scenario& scenario :
       scenariosOf(answers.scenarios, answers.points[point].hardware)) {
    AnswerRow row{point, std::move(scenario), std::nullopt};
    if (answers.answers[point]->ok() && row.scenario.tokens > 0)
      row.economics = planner::economicsOf(trainingOf(answers, point), row.scenario);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<AnswerRow> rowsOf(const Answers& answers) {
  std::vector<AnswerRow> rows;
  for (size_t i = 0; i < answers.points.size(); ++i)
    for (AnswerRow& row : rowsOf(answers, i)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace trireme::cli
