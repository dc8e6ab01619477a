#include "planner/cuts/own_cuts.h"

#include <algorithm>
#include <numeric>

#include "planner/cuts/cut_player.h"
#include "planner/cuts/cut_relaxation.h"
#include "planner/cuts/cuts.h"
#include "planner/rounding.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {
namespace {

// Passes of a chunk to be played for one plan: some milliseconds, as an estimate takes.
constexpr int64_t kMostOwnPasses = 60000;
// The same where all cuts that fit may be faster than the answer.
constexpr int64_t kMostPassesNear = 500000;
// Cuts that are costed of those that may be faster than the answer.
constexpr size_t kMostExactOwn = 8;
// Moves of a layer that are tried in vain in one step of the descent.
constexpr size_t kMostOwnInVain = 16;

class OwnStages : public StageCosts {
 public:
  OwnStages(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
            std::vector<Bytes> beyond = {})
      : query_(query),
        plan_(plan),
        blocks_(blocks),
        beyond_(std::move(beyond)),
        links_(stepLinksOf(query, plan)) {
    const Bytes reserve = leastReserve(query, plan);
    for (size_t rank = 0; rank < static_cast<size_t>(plan.pp); ++rank)
      memory_.push_back(chunkMemoryOf(query, plan, blocks, rank, reserve));
    plan_.layers.assign(static_cast<size_t>(plan.pp),
                        std::vector<plan::LayerRange>(static_cast<size_t>(plan.virtualStages)));
  }

  Stage stageOf(size_t rank, const std::vector<int64_t>& counts) override {
    for (size_t c = 0; c < counts.size(); ++c) plan_.layers[rank][c].count = counts[c];
    StageBound stage = stageBoundOf(query_, plan_, blocks_, rank, links_);
    return {std::move(stage.times), stage.once};
  }
  bool fits(size_t rank, const std::vector<int64_t>& counts) override {
    const Bytes bound = memory_[rank].of(counts);
    const Bytes need = beyond_.empty() ? bound * kRounding : bound + beyond_[rank];
    return need <= query_.cluster.device.memory;
  }
  bool takesEmptyEnds() const override { return false; }

 private:
  const Query& query_;
  plan::Plan plan_;
  const BlockCosts& blocks_;
  const std::vector<Bytes> beyond_;
  const StepLinks links_;
  std::vector<ChunkMemory> memory_;  // by rank
};

// The same layers per stage with the longer chunks behind, in front, or behind on the first half of
// the stages and in front on the others.
std::vector<Counts> spreadsOf(const Counts& counts) {
  if (counts.front().size() == 1) return {};
  const auto chunks = static_cast<int64_t>(counts.front().size());
  std::vector<Counts> spreads(3);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const int64_t layers = std::accumulate(counts[rank].begin(), counts[rank].end(), int64_t{0});
    const std::vector<int64_t> behind = spreadOver(layers, chunks);
    const std::vector<int64_t> inFront(behind.rbegin(), behind.rend());
    spreads[0].push_back(behind);
    spreads[1].push_back(rank == 0 ? behind : inFront);
    spreads[2].push_back(2 * rank < counts.size() ? behind : inFront);
  }
  return spreads;
}

// Layers go, one by one, from ranks that do not fit, the first chunks first, which keep most, to
// the chunk of another rank that fits with it and takes least time then. None: nobody has room.
std::optional<Counts> movedOff(Counts counts, CutPlayer& player) {
  for (size_t from = 0; from < counts.size();) {
    if (player.fits(from, counts[from])) {
      ++from;
      continue;
    }
    const auto giver = std::find_if(counts[from].begin(), counts[from].end(),
                                    [](int64_t layers) { return layers > 1; });
    if (giver == counts[from].end()) return std::nullopt;
    --*giver;
    int64_t* taker = nullptr;
    double shortest = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank)
      for (int64_t& layers : counts[rank]) {
        if (rank == from) break;
        ++layers;
        const double time = player.stageOf(rank, counts[rank]).all;
        if ((taker == nullptr || time < shortest) && player.fits(rank, counts[rank])) {
          taker = &layers;
          shortest = time;
        }
        --layers;
      }
    if (taker == nullptr) return std::nullopt;
    ++*taker;
  }
  return counts;
}

}  // namespace

std::vector<BoundedCut> ownCuts(const Query& query, const plan::Plan& plan,
                                const BlockCosts& blocks, cost::FlushPlayer& flush,
                                const std::vector<Ranges>& cuts) {
  OwnStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, pipelineOf(query, plan, blocks), 1, std::nullopt, kMostOwnPasses);
  std::vector<BoundedCut> result;
  for (const Ranges& cut : cuts) {
    const Counts counts = countsOf(cut);
    if (!player.fits(counts)) continue;
    result.push_back({cut, player.timeOf(counts) * kRounding});
    player.play(counts);
  }
  if (plan.pp == 1) return result;
  for (const Ranges& cut : cuts)
    for (const Counts& counts : spreadsOf(countsOf(cut))) player.play(counts);
  player.descend(kMostOwnInVain);
  if (player.best() && std::none_of(cuts.begin(), cuts.end(), [&](const Ranges& cut) {
        return cut == player.best()->layers;
      }))
    result.push_back({player.best()->layers, player.best()->step * kRounding});
  return result;
}

ExactCuts exactOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                       cost::FlushPlayer& flush, Spread spread, const cost::OnceTimes& leastOnce,
                       Seconds enough, int64_t& passes) {
  OwnStages stages(query, plan, blocks);
  const cost::Pipeline pipeline = pipelineOf(query, plan, blocks);
  CutPlayer player(stages, flush, pipeline, kRounding, std::nullopt, kMostOwnPasses);
  return exactCuts({pipeline, query.model.numLayers, plan.virtualStages,
                    static_cast<size_t>(plan.pp), spread, leastOnce, enough, kMostExactOwn},
                   player, passes);
}

namespace {

// With the bound of estimates, not of flushes.
CutRelaxation::Result relaxed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                              const AllCuts& cheap, Seconds enough, CutRelaxation::Goal goal,
                              int64_t& passes) {
  const Seconds known = cheap.bound(), once = cheap.once().total();
  int64_t left = std::min(passes, kMostPassesOfOne);
  passes -= left;
  CutRelaxation::Result result =
      CutRelaxation(ownChunks(query, plan, blocks))
          .solve(known / kRounding - once, enough / kRounding - once, left, goal);
  passes += left;
  result.bound = std::max(known, (result.bound + once) * kRounding);
  return result;
}

}  // namespace

Seconds boundOfOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                       const AllCuts& cheap, Seconds enough, int64_t& passes) {
  return relaxed(query, plan, blocks, cheap, enough, CutRelaxation::Goal::kVerdict, passes).bound;
}

AllOwnCuts allOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                      cost::FlushPlayer& flush, const AllCuts& cheap, Seconds enough,
                      int64_t& passes) {
  const CutRelaxation::Result near =
      relaxed(query, plan, blocks, cheap, enough, CutRelaxation::Goal::kBound, passes);
  AllOwnCuts all{near.bound, {}};
  if (all.bound >= enough) return all;
  OwnStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, pipelineOf(query, plan, blocks), 1, std::nullopt,
                   kMostPassesNear);
  const auto counts = player.nearest(near.layers, query.model.numLayers, plan.virtualStages);
  if (!player.play(counts ? *counts : leanestCounts(query, plan, blocks))) return all;
  player.descend(kMostOwnInVain);
  passes -= player.numPasses();
  if (player.best()->step < enough)
    all.cut = {player.best()->layers, player.best()->step * kRounding};
  return all;
}

std::optional<BoundedCut> refitted(const Query& query, const plan::Plan& cut,
                                   const BlockCosts& blocks, cost::FlushPlayer& flush,
                                   const std::vector<Bytes>& beyond) {
  OwnStages stages(query, cut, blocks, beyond);
  CutPlayer player(stages, flush, pipelineOf(query, cut, blocks), 1, std::nullopt, kMostOwnPasses);
  if (const auto moved = movedOff(countsOf(cut.layers), player)) player.play(*moved);
  player.play(leanestCounts(query, cut, blocks, beyond));
  player.descend(kMostOwnInVain);
  if (!player.best()) return std::nullopt;
  return BoundedCut{player.best()->layers, player.best()->step * kRounding};
}

std::vector<Bytes> beyondBounds(const Query& query, const plan::Plan& plan,
                                const BlockCosts& blocks, const std::vector<Bytes>& memory) {
  const Bytes reserve = leastReserve(query, plan);
  std::vector<Bytes> beyond;
  for (size_t rank = 0; rank < memory.size(); ++rank)
    beyond.push_back(memory[rank] - rankMemory(query, plan, blocks, rank, reserve));
  return beyond;
}

}  // namespace trireme::planner
