#include "planner/cuts/cut_relaxation.h"

#include <algorithm>
#include <utility>

#include "cost_models/formulas.h"
#include "planner/cuts/all_cuts.h"
#include "planner/cuts/chains.h"

namespace trireme::planner {
namespace {

using cost::asDouble;

// How far a play is from the best cut so far towards the program's solution.
constexpr double kTowards = 0.3;
// What a bound may still gain when it is left as it is; where it cannot become enough.
constexpr double kClose = 1e-4, kCloseBelow = 2e-3;
// Memory that is too much costs, while there may be none; in units of the program.
constexpr double kPenalty = 1e3;
// What the program does in the time that a play takes for a pass: 5 and 50 instructions each.
constexpr int64_t kProductsOfPass = 10;
// Share of a rank's memory that is none.
constexpr double kFull = 1e-9;

// Columns of the program: layers of every chunk, then
int timeColumn(size_t numChunks) { return static_cast<int>(numChunks); }
int excessColumn(size_t numChunks) { return static_cast<int>(numChunks) + 1; }

}  // namespace

CutRelaxation::CutRelaxation(LinearChunks chunks)
    : linear_(std::move(chunks)),
      stages_(linear_.numStages()),
      chunks_(linear_.perStage()),
      numChunks_(linear_.numChunks()),
      level_(linear_.levelled()) {
  TRIREME_CHECK(stages_ > 1 && linear_.pipeline.schedule != plan::ScheduleKind::kGpipe);
  unit_ = linear_.ofLayerInAll() * linear_.numLayers * asDouble(linear_.pipeline.numMicrobatches) /
          static_cast<double>(stages_);
  LinearProgram::Entries all;
  for (const double least : linear_.least) all.emplace_back(program_.addColumn(least), 1.0);
  program_.addColumn(0);
  program_.addColumn(0);
  program_.addRow(all, linear_.numLayers);
  for (size_t rank = 0; rank < stages_; ++rank) addMemory(linear_.memoryAt(rank, level_));
  addClosedForms();
}

void CutRelaxation::addMemory(LinearRow line) {
  LinearProgram::Entries entries = {{excessColumn(numChunks_), 1.0}};
  for (size_t i = 0; i < numChunks_; ++i)
    if (line.perLayer[i] != 0) entries.emplace_back(static_cast<int>(i), -line.perLayer[i]);
  program_.addRow(entries, line.fixed);
  rows_.push_back({std::move(line), true});
}

void CutRelaxation::addTime(LinearRow line) {
  LinearProgram::Entries entries = {{timeColumn(numChunks_), 1.0}};
  for (size_t i = 0; i < numChunks_; ++i)
    if (line.perLayer[i] != 0) entries.emplace_back(static_cast<int>(i), -line.perLayer[i] / unit_);
  program_.addRow(entries, line.fixed / unit_);
  rows_.push_back({std::move(line), false});
}

// What ranks hold with so many layers, where the program does not know it. False: nowhere.
bool CutRelaxation::addMemoryAt(const std::vector<double>& layers) {
  const double known = knownExcess(layers);
  bool isNews = false;
  for (size_t rank = 0; rank < stages_; ++rank) {
    LinearRow line = linear_.memoryAt(rank, layers);
    if (line.at(layers) <= known + kFull) continue;
    addMemory(std::move(line));
    isNews = true;
  }
  return isNews;
}

// To begin with; transfers that stop the stage are in the passes.
void CutRelaxation::addClosedForms() {
  const std::vector<double> none(numChunks_, 0.0);
  const auto ofLayer = [&](PassKind kind, size_t) { return linear_.ofLayer[kind]; };
  for (cost::Chain& chain : closedForms(linear_.pipeline)) {
    for (size_t i = 0; i < numChunks_; ++i)
      for (size_t kind = 0; kind < kNumPassKinds; ++kind)
        chain.length += Seconds(linear_.fixed[kind][i]) *
                        static_cast<double>(chain.passesAt(i / chunks_, kind, i % chunks_));
    addTime(lineOf(chain, ofLayer, none));
  }
}

// The bound of the header; prices of memory alone prove nothing but that no cut fits.
double CutRelaxation::proved(const std::vector<double>& prices, bool ofMemoryAlone) const {
  std::vector<double> perLayer(numChunks_, 0.0);
  double sum = 0, bound = 0, left = linear_.numLayers;
  for (size_t k = 0; k < rows_.size(); ++k) {
    const auto& [line, isMemory] = rows_[k];
    const double price = isMemory ? prices[k + 1] * unit_ : ofMemoryAlone ? 0 : prices[k + 1];
    if (price == 0) continue;
    if (!isMemory) sum += price;
    bound += price * line.fixed;
    for (size_t i = 0; i < numChunks_; ++i) perLayer[i] += price * line.perLayer[i];
  }
  for (size_t i = 0; i < numChunks_; ++i) {
    bound += linear_.least[i] * perLayer[i];
    left -= linear_.least[i];
  }
  bound += left * *std::min_element(perLayer.begin(), perLayer.end());
  return sum > 0 ? bound / sum : bound > 0 ? kNoCut.count() : 0;
}

bool CutRelaxation::solveProgram(int64_t& passes) {
  const int64_t before = program_.numProducts();
  const bool isSolved = program_.solve();
  passes -= (program_.numProducts() - before) / kProductsOfPass;
  return isSolved;
}

std::vector<double> CutRelaxation::solution() const {
  std::vector<double> layers = program_.values();
  layers.resize(numChunks_);
  return layers;
}

// By the least excess of memory.
bool CutRelaxation::mayFit(int64_t& passes) {
  std::vector<double> costs(numChunks_ + 2, 0.0);
  costs.back() = 1;
  program_.setCosts(costs);
  do {
    if (!solveProgram(passes)) return true;
    if (proved(program_.prices(), true) > 0) return false;
  } while (passes > 0 && addMemoryAt(solution()));
  return true;
}

// Adds the chain that is the longest with so many layers; returns how long it is. Estimates play
// the schedule as well: stages are never even, for the ends have the embedding and the head.
double CutRelaxation::play(const std::vector<double>& layers) {
  cost::Pipeline& pipeline = linear_.pipeline;
  const Seconds stop = pipeline.stop();
  for (size_t rank = 0; rank < stages_; ++rank)
    for (size_t c = 0; c < chunks_; ++c) {
      const size_t i = chunkAt(rank, c);
      const auto timeOf = [&](PassKind kind) {
        return Seconds(linear_.timeOf(kind, i, layers[i]));
      };
      cost::StageTimes& times = pipeline.stages[rank];
      times.forward[c] = timeOf(kForwardPass) - stop;
      times.backward[c] = timeOf(kBackwardPass) - stop;
      if (!times.weights.empty()) times.weights[c] = timeOf(kWeightsPass);
    }
  const cost::Chain chain = player_.chainOf(pipeline);
  const auto ofLayer = [&](PassKind kind, size_t) { return linear_.ofLayer[kind]; };
  addTime(lineOf(chain, ofLayer, layers));
  return chain.length.count();
}

// By the rows of the program.
double CutRelaxation::knownExcess(const std::vector<double>& layers) const {
  double most = 0;
  for (const auto& [line, isMemory] : rows_)
    if (isMemory) most = std::max(most, line.at(layers));
  return most;
}

CutRelaxation::Result CutRelaxation::solve(Seconds known, Seconds enough, int64_t& passes,
                                           Goal goal) {
  if (!mayFit(passes)) return {kNoCut, {}};
  std::vector<double> costs(numChunks_ + 2, 0.0);
  costs[numChunks_] = 1;
  costs[numChunks_ + 1] = kPenalty;
  program_.setCosts(costs);
  const int64_t perPlay = (plan::splitsBackward(linear_.pipeline.schedule) ? 3 : 2) *
                          linear_.pipeline.numMicrobatches * static_cast<int64_t>(numChunks_);
  // What memory lacks, in s: so much that the best of all cuts that are not whole has no excess.
  const auto timeOf = [&](const std::vector<double>& layers) {
    addMemoryAt(layers);
    return play(layers) + knownExcess(layers) * kPenalty * unit_;
  };
  std::vector<double> best = level_;
  passes -= perPlay;
  double reached = timeOf(best), least = known.count();
  const auto isDone = [&] {
    const bool isBelow = reached < enough.count();  // and so is the least, which is no longer
    if (isBelow && goal == Goal::kVerdict) return true;
    return least >= enough.count() || least >= reached * (1 - (isBelow ? kCloseBelow : kClose));
  };
  for (; passes > 0 && !isDone() && solveProgram(passes); passes -= perPlay) {
    least = std::max(least, proved(program_.prices()));
    if (isDone()) break;
    std::vector<double> layers = solution();
    for (size_t i = 0; i < numChunks_; ++i) layers[i] = best[i] + kTowards * (layers[i] - best[i]);
    const double time = timeOf(layers);
    if (time >= reached) continue;
    reached = time;
    best = std::move(layers);
  }
  return {Seconds(least), std::move(best)};
}

}  // namespace trireme::planner
