#include "planner/own_cuts.h"

#include <algorithm>
#include <numeric>

#include "planner/cut_player.h"
#include "planner/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

// Passes of a chunk to be played for one plan: some milliseconds, as an estimate takes.
constexpr int64_t kMostOwnPasses = 60000;
// Chunks that a layer is moved from and to in one step of the descent.
constexpr size_t kMostOwnEnds = 12;

class OwnStages : public StageCosts {
 public:
  OwnStages(const Query& query, const plan::Plan& plan, const BlockCosts& blocks)
      : query_(query), plan_(plan), blocks_(blocks) {
    plan_.layers.assign(static_cast<size_t>(plan.pp),
                        std::vector<plan::LayerRange>(static_cast<size_t>(plan.virtualStages)));
  }

  Stage stageOf(size_t rank, const std::vector<int64_t>& counts) override {
    StageBound stage = boundOf(rank, counts);
    return {std::move(stage.times), stage.once};
  }
  bool fits(size_t rank, const std::vector<int64_t>& counts) override {
    return boundOf(rank, counts).memory * kRounding <= query_.cluster.device.memory;
  }
  bool takesEmptyEnds() const override { return false; }

 private:
  StageBound boundOf(size_t rank, const std::vector<int64_t>& counts) {
    for (size_t c = 0; c < counts.size(); ++c) plan_.layers[rank][c].count = counts[c];
    return stageBoundOf(query_, plan_, blocks_, rank);
  }

  const Query& query_;
  plan::Plan plan_;
  const BlockCosts& blocks_;
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

}  // namespace

std::vector<BoundedCut> ownCuts(const Query& query, const plan::Plan& plan,
                                const BlockCosts& blocks, const std::vector<Ranges>& cuts) {
  OwnStages stages(query, plan, blocks);
  CutPlayer player(stages, pipelineOf(query, plan, blocks),
                   {blocks.layer.forward, blocks.layer.backward}, 1, std::nullopt, kMostOwnPasses);
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
  player.descend(kMostOwnEnds);
  if (player.best() && std::none_of(cuts.begin(), cuts.end(), [&](const Ranges& cut) {
        return cut == player.best()->layers;
      }))
    result.push_back({player.best()->layers, player.best()->step * kRounding});
  return result;
}

}  // namespace trireme::planner
