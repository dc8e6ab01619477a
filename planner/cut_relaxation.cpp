#include "planner/cut_relaxation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"
#include "planner/all_cuts.h"
#include "planner/own_memory.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

using cost::asDouble;

// How far a play is from the best cut so far towards the program's solution.
constexpr double kTowards = 0.3;
// What a bound may still gain when it is left as it is; where it cannot become enough.
constexpr double kClose = 1e-4, kCloseBelow = 2e-3;
// Memory that is too much costs, while there may be none; in units of the program.
constexpr double kPenalty = 1e3;

// Columns of the program: layers of every chunk, then
int timeColumn(size_t numChunks) { return static_cast<int>(numChunks); }
int excessColumn(size_t numChunks) { return static_cast<int>(numChunks) + 1; }

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

CutRelaxation::CutRelaxation(const Query& query, const plan::Plan& plan, const BlockCosts& blocks)
    : query_(query),
      plan_([&] {
        plan::Plan bare = plan;
        bare.layers.assign(static_cast<size_t>(plan.pp),
                           std::vector<plan::LayerRange>(static_cast<size_t>(plan.virtualStages)));
        return bare;
      }()),
      stages_(static_cast<size_t>(plan.pp)),
      chunks_(static_cast<size_t>(plan.virtualStages)),
      numChunks_(stages_ * chunks_),
      layers_(asDouble(query.model.numLayers)),
      ofLayer_{blocks.layer.forward.count(), blocks.layer.backward.count(),
               blocks.layer.weights.count()},
      pipeline_(pipelineOf(query, plan_, blocks)) {
  TRIREME_CHECK(plan.pp > 1 && plan.schedule != plan::ScheduleKind::kGpipe);
  const double stop = pipeline_.overlapTransfers ? 0 : pipeline_.hop.count();
  for (size_t rank = 0; rank < stages_; ++rank) {
    pipeline_.stages.push_back(stageTimesOf(plan_, blocks, rank));
    const cost::StageTimes& times = pipeline_.stages.back();
    for (size_t c = 0; c < chunks_; ++c) {
      fixed_[kForward].push_back(times.forward[c].count() + stop);
      fixed_[kBackward].push_back(times.backward[c].count() + stop);
      fixed_[kWeights].push_back(times.weights.empty() ? 0 : times.weights[c].count());
    }
  }
  unit_ = (ofLayer_[0] + ofLayer_[1] + ofLayer_[2]) * layers_ * asDouble(plan.numMicrobatches()) /
          asDouble(plan.pp);
  LinearProgram::Entries all;
  for (size_t i = 0; i < numChunks_; ++i) all.emplace_back(program_.addColumn(1), 1.0);
  program_.addColumn(0);
  program_.addColumn(0);
  program_.addRow(all, layers_);
  addMemory(blocks);
  addClosedForms();
}

void CutRelaxation::addMemory(const BlockCosts& blocks) {
  const Bytes available = query_.cluster.device.memory / kRounding;
  const Bytes reserve = leastReserve(query_, plan_);
  for (size_t rank = 0; rank < stages_; ++rank) {
    const ChunkMemory memory = chunkMemoryOf(query_, plan_, blocks, rank, reserve);
    Row row{std::vector<double>(numChunks_, 0.0), memory.fixed / available - 1};
    LinearProgram::Entries entries = {{excessColumn(numChunks_), 1.0}};
    for (size_t c = 0; c < chunks_; ++c) {
      row.perLayer[chunkAt(rank, c)] = memory.perLayer[c] / available;
      entries.emplace_back(static_cast<int>(chunkAt(rank, c)), -(memory.perLayer[c] / available));
    }
    program_.addRow(entries, row.fixed);
    memories_.push_back(std::move(row));
  }
}

void CutRelaxation::addTime(Row row) {
  LinearProgram::Entries entries = {{timeColumn(numChunks_), 1.0}};
  for (size_t i = 0; i < numChunks_; ++i)
    if (row.perLayer[i] != 0) entries.emplace_back(static_cast<int>(i), -row.perLayer[i] / unit_);
  program_.addRow(entries, row.fixed / unit_);
  times_.push_back(std::move(row));
}

// Transfers that stop the stage are in the passes.
void CutRelaxation::addChain(const Passes& passes, double hops) {
  Row row{std::vector<double>(numChunks_, 0.0),
          pipeline_.overlapTransfers ? pipeline_.hop.count() * hops : 0};
  for (const Side side : {kForward, kBackward, kWeights})
    for (size_t i = 0; i < numChunks_; ++i) {
      const double count = passes[side * numChunks_ + i];
      row.perLayer[i] += count * ofLayer_[side];
      row.fixed += count * fixed_[side][i];
    }
  addTime(std::move(row));
}

// cost::pipelineTime but for stalls; to begin with.
void CutRelaxation::addClosedForms() {
  const double m = asDouble(plan_.numMicrobatches()), p = asDouble(plan_.pp);
  const bool isSplit = plan::splitsBackward(plan_.schedule);
  for (size_t rank = 0; rank < stages_; ++rank) {
    const auto each = [&](Passes& passes, Side side, double count) {
      for (size_t c = 0; c < chunks_; ++c) passes[side * numChunks_ + chunkAt(rank, c)] += count;
    };
    const auto add = [&](Passes& passes, Side side, size_t other, size_t chunk) {
      passes[side * numChunks_ + chunkAt(other, chunk)] += 1;
    };
    Passes works = noPasses();
    each(works, kForward, m);
    each(works, kBackward, m);
    if (!isSplit) {
      for (size_t other = 0; other < stages_; ++other) {
        if (other == rank) continue;
        add(works, kForward, other, other < rank ? 0 : chunks_ - 1);
        add(works, kBackward, other, other < rank ? 0 : chunks_ - 1);
      }
      addChain(works, 2 * (asDouble(plan_.virtualStages) * p - 1));
      continue;
    }
    const double r = asDouble(static_cast<int64_t>(rank));
    const schedule::Lead lead =
        schedule::leadOf(plan_.schedule, plan_.pp, static_cast<int64_t>(rank));
    Passes goesBack = works, comesBack = noPasses();
    each(works, kWeights, m);
    each(goesBack, kWeights, std::max(m - 1 - asDouble(lead.backwards), 0.0));
    add(goesBack, kWeights, 0, 0);
    each(comesBack, kForward, std::max(m - asDouble(lead.forwards), 0.0));
    each(comesBack, kBackward, m);
    each(comesBack, kWeights, m);
    for (size_t other = 0; other < stages_; ++other) {
      if (other < rank) {
        add(works, kForward, other, 0);
        add(goesBack, kForward, other, 0);
        add(goesBack, kBackward, other, 0);
      }
      add(comesBack, kForward, other, 0);
      if (other > rank) add(comesBack, kBackward, other, 0);
    }
    addChain(works, r);
    addChain(goesBack, 2 * r);
    addChain(comesBack, 2 * (p - 1) - r);
  }
}

// The bound of the header; weights of no sum prove nothing but that no cut fits.
double CutRelaxation::proved(const std::vector<double>& weights,
                             const std::vector<double>& prices) const {
  std::vector<double> perLayer(numChunks_, 0.0);
  double sum = 0, least = 0;
  const auto count = [&](const std::vector<Row>& rows, const std::vector<double>& of) {
    for (size_t k = 0; k < rows.size(); ++k) {
      if (of[k] == 0) continue;
      least += of[k] * rows[k].fixed;
      for (size_t i = 0; i < numChunks_; ++i) perLayer[i] += of[k] * rows[k].perLayer[i];
    }
  };
  count(times_, weights);
  count(memories_, prices);
  for (const double weight : weights) sum += weight;
  double shortest = std::numeric_limits<double>::infinity();
  for (const double each : perLayer) {
    least += each;
    shortest = std::min(shortest, each);
  }
  least += (layers_ - asDouble(static_cast<int64_t>(numChunks_))) * shortest;
  return sum > 0 ? least / sum : least > 0 ? kNoCut.count() : 0;
}

// A number in the program is counted as two passes of a play; with 88 chunks and 150 rows it took
// as long as two to five.
bool CutRelaxation::solveProgram(int64_t& passes) {
  passes -= 2 * static_cast<int64_t>(numChunks_ * (1 + memories_.size() + times_.size()));
  return program_.solve();
}

// By the least excess of memory.
bool CutRelaxation::mayFit(int64_t& passes) {
  std::vector<double> costs(numChunks_ + 2, 0.0);
  costs.back() = 1;
  program_.setCosts(costs);
  if (!solveProgram(passes)) return true;
  std::vector<double> prices = program_.prices();
  prices.erase(prices.begin());
  prices.resize(stages_);
  return proved(std::vector<double>(times_.size(), 0.0), prices) == 0;
}

// All chunks take as long, if each may have as few layers as one.
std::vector<double> CutRelaxation::levelled() const {
  const double ofLayer = ofLayer_[0] + ofLayer_[1] + ofLayer_[2];
  const auto layersIn = [&](double time) {
    std::vector<double> layers;
    for (size_t i = 0; i < numChunks_; ++i)
      layers.push_back(std::max(
          (time - fixed_[kForward][i] - fixed_[kBackward][i] - fixed_[kWeights][i]) / ofLayer,
          1.0));
    return layers;
  };
  double low = 0, high = ofLayer * layers_ + unit_;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    const std::vector<double> layers = layersIn(middle);
    (std::accumulate(layers.begin(), layers.end(), 0.0) < layers_ ? low : high) = middle;
  }
  return layersIn(high);
}

// Adds the chain that is the longest with so many layers; returns how long it is. Estimates play
// the schedule as well: stages are never even, for the ends have the embedding and the head.
double CutRelaxation::play(const std::vector<double>& layers) {
  const double stop = pipeline_.overlapTransfers ? 0 : pipeline_.hop.count();
  for (size_t rank = 0; rank < stages_; ++rank)
    for (size_t c = 0; c < chunks_; ++c) {
      const size_t i = chunkAt(rank, c);
      const auto timeOf = [&](Side side) {
        return Seconds(fixed_[side][i] + ofLayer_[side] * layers[i]);
      };
      cost::StageTimes& times = pipeline_.stages[rank];
      times.forward[c] = timeOf(kForward) - Seconds(stop);
      times.backward[c] = timeOf(kBackward) - Seconds(stop);
      if (!times.weights.empty()) times.weights[c] = timeOf(kWeights);
    }
  const cost::Simulation played = player_.play(pipeline_, false);
  Row row{std::vector<double>(numChunks_, 0.0), 0};
  for (const cost::PathItem& item : played.path) {
    const Side side = item.direction == program::Direction::kForward    ? kForward
                      : item.direction == program::Direction::kBackward ? kBackward
                                                                        : kWeights;
    row.perLayer[chunkAt(static_cast<size_t>(item.stage), static_cast<size_t>(item.chunk))] +=
        ofLayer_[side];
  }
  const double time = played.makespan.count();
  row.fixed = time - dot(row.perLayer, layers);
  addTime(std::move(row));
  return time;
}

// What memory lacks, in s: so much that the best of all cuts that are not whole has no excess.
double CutRelaxation::excess(const std::vector<double>& layers) const {
  double most = 0;
  for (const Row& memory : memories_)
    most = std::max(most, memory.fixed + dot(memory.perLayer, layers));
  return most * kPenalty * unit_;
}

CutRelaxation::Result CutRelaxation::solve(Seconds known, Seconds enough, int64_t& passes) {
  if (!mayFit(passes)) return {kNoCut, {}};
  std::vector<double> costs(numChunks_ + 2, 0.0);
  costs[numChunks_] = 1;
  costs[numChunks_ + 1] = kPenalty;
  program_.setCosts(costs);
  const int64_t perPlay = (plan::splitsBackward(plan_.schedule) ? 3 : 2) * plan_.numMicrobatches() *
                          static_cast<int64_t>(numChunks_);
  std::vector<double> best = levelled();
  double reached = play(best) + excess(best), least = known.count();
  const auto isDone = [&] {
    const double close = reached < enough.count() ? kCloseBelow : kClose;
    return least >= enough.count() || least >= reached * (1 - close);
  };
  for (; passes > 0 && !isDone() && solveProgram(passes); passes -= perPlay) {
    const std::vector<double> prices = program_.prices();
    const auto ofTimes = prices.begin() + 1 + static_cast<long>(stages_);
    std::vector<double> ofMemory(prices.begin() + 1, ofTimes);
    for (double& price : ofMemory) price *= unit_;
    least = std::max(least, proved({ofTimes, prices.end()}, ofMemory));
    if (isDone()) break;
    std::vector<double> layers = program_.values();
    for (size_t i = 0; i < numChunks_; ++i) layers[i] = best[i] + kTowards * (layers[i] - best[i]);
    layers.resize(numChunks_);
    const double time = play(layers) + excess(layers);
    if (time >= reached) continue;
    reached = time;
    best = std::move(layers);
  }
  return {Seconds(least), std::move(best)};
}

}  // namespace trireme::planner
