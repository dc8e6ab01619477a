#include "planner/cuts/played_cut.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "cost_models/described_memory.h"
#include "planner/cuts/all_cuts.h"
#include "planner/cuts/cut_player.h"
#include "planner/cuts/cut_relaxation.h"
#include "planner/cuts/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

// Passes of a chunk to be played for one plan, four times: within the space, but for the first
// cut, and for moves from each start. Each less than a millisecond.
constexpr int64_t kMostPasses = 64000;
// The same to relax one; and what trying it takes besides.
constexpr int64_t kMostPassesOfRelaxation = 200'000, kPassesOfTry = 5000;
// To be played for moves from a cut that may win.
constexpr int64_t kMostPassesOfPolish = 1'000'000;
// Cuts that are looked at, of which most are too slow by the closed form, for one plan.
constexpr int64_t kMostLooks = 200;
// Moves of a layer that are tried in vain in one step of the descent: of every plan, and of those
// that may win.
constexpr size_t kMostInVain = 3, kMostInVainOfFew = 16;
// Cuts that take so much more than what counts may become fast enough by moves of layers.
constexpr double kDescended = 1.06;

// Of a stack with a description.
class DescribedStages : public StageCosts {
 public:
  DescribedStages(const Query& query, const plan::Plan& plan, const BlockCosts& blocks)
      : stages_(query, plan, blocks) {}

  size_t kindOf(size_t rank) const override { return stages_.kindOf(static_cast<int64_t>(rank)); }
  Stage stageOf(size_t rank, const std::vector<int64_t>& counts) override {
    stages_.setLayers(static_cast<int64_t>(rank), counts);
    cost::StageEstimate estimate = cost::estimateStage(stages_.setting, rank);
    return {std::move(estimate.times), estimate.once.times()};
  }
  bool fits(size_t rank, const std::vector<int64_t>& counts) override {
    stages_.setLayers(static_cast<int64_t>(rank), counts);
    return cost::describedMemoryOf(stages_.setting, rank).total() <=
           stages_.query.cluster.device.memory;
  }
  bool takesEmptyEnds() const override { return true; }

  cost::Pipeline pipeline() const { return stages_.pipeline(); }
  double factor() const { return stages_.factor; }

 private:
  CutStages stages_;
};

// All ways to have the rest of a stage's layers, beyond an equal share of its chunks, on one chunk
// each, as long as `visit` wants more.
bool forEachSpread(int64_t layers, size_t chunks, bool isFirst, bool isLast,
                   const std::function<bool(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> counts = spreadOver(layers, static_cast<int64_t>(chunks));
  do {
    const auto none = std::count(counts.begin(), counts.end(), 0);
    const bool isLegal =
        none == 0 ||
        (none == 1 && ((isFirst && counts.front() == 0) || (isLast && counts.back() == 0)));
    if (isLegal && !visit(counts)) return false;
  } while (std::next_permutation(counts.begin(), counts.end()));
  return true;
}

// Plays all cuts of the space that the closed form puts below the limit. False: there are too many.
class Enumeration {
 public:
  Enumeration(CutPlayer& player, const plan::Plan& plan, int64_t layers, std::vector<int64_t> most)
      : player_(player),
        microbatches_(static_cast<double>(plan.numMicrobatches())),
        isSplit_(plan::splitsBackward(plan.schedule)),
        chunks_(static_cast<size_t>(plan.virtualStages)),
        most_(std::move(most)),
        counts_(most_.size()) {
    mostBehind_.assign(most_.size() + 1, 0);
    for (size_t rank = most_.size(); rank-- > 0;)
      mostBehind_[rank] = mostBehind_[rank + 1] + most_[rank];
    isWhole_ = go(0, layers, {});
  }
  bool isWhole() const { return isWhole_; }

 private:
  struct Path {
    double through = 0, longest = 0;
    cost::OnceTimes once;
  };

  // Of a split backward a stage's own work alone, for its W fills what it waits for.
  Path after(const Path& before, const CutPlayer::Stage& stage) const {
    if (isSplit_)
      return {0, std::max(before.longest, stage.all * microbatches_),
              longest(before.once, stage.once)};
    return {before.through + stage.first,
            std::max(before.longest + stage.last, stage.all * microbatches_ + before.through),
            longest(before.once, stage.once)};
  }
  bool isSlow(const Path& path) const {
    return (Seconds(path.longest) + path.once.total()) * player_.factor() >
           player_.limit() * (1 + 1e-9);
  }

  bool go(size_t rank, int64_t left, const Path& path) {
    const bool isFirst = rank == 0, isLast = rank + 1 == most_.size();
    if (rank == most_.size()) {
      if (!player_.mayPlay()) return false;
      player_.play(counts_);
      return true;
    }
    const auto chunks = static_cast<int64_t>(chunks_);
    const int64_t least =
        std::max(chunks - (isFirst || isLast ? 1 : 0), left - mostBehind_[rank + 1]);
    for (int64_t layers = least; layers <= std::min(most_[rank], left); ++layers) {
      bool isLonger = true;  // than the limit, as more layers then are as well
      const bool isWhole =
          forEachSpread(layers, chunks_, isFirst, isLast, [&](const std::vector<int64_t>& counts) {
            if (++numLooks_ >= kMostLooks) return false;
            const CutPlayer::Stage& stage = player_.stageOf(rank, counts);
            const Path next = after(path, stage);
            if (Seconds(stage.all * microbatches_ * player_.factor()) <= player_.limit())
              isLonger = false;
            if (isSlow(next) || !player_.fits(rank, counts)) return true;
            counts_[rank] = counts;
            return go(rank + 1, left - layers, next);
          });
      if (!isWhole) return false;
      if (isLonger) break;
    }
    return true;
  }

  CutPlayer& player_;
  const double microbatches_;
  const bool isSplit_;
  const size_t chunks_;
  const std::vector<int64_t> most_;
  std::vector<int64_t> mostBehind_;
  Counts counts_;
  int64_t numLooks_ = 0;
  bool isWhole_ = false;
};

// The longer chunks of a stage behind, in front or in between. Early stages come first in the
// longest path with their first chunks, late ones with their last ones.
enum class Place : uint8_t { kBehind, kInFront, kInside };

std::vector<int64_t> spreadTo(int64_t layers, int64_t chunks, Place place) {
  std::vector<int64_t> counts = spreadOver(layers, chunks);
  if (place == Place::kInFront) std::reverse(counts.begin(), counts.end());
  if (place == Place::kInside)
    std::rotate(counts.begin(), counts.begin() + (chunks - layers % chunks) / 2, counts.end());
  return counts;
}

std::vector<Counts> spreadsOf(const plan::Plan& plan, const std::vector<int64_t>& layers) {
  const auto stages = layers.size();
  const auto placed = [&](const std::function<Place(size_t)>& placeOf) {
    Counts counts;
    for (size_t rank = 0; rank < stages; ++rank) {
      const bool hasNone = layers[rank] < plan.virtualStages;
      const Place place = hasNone ? (rank == 0 ? Place::kBehind : Place::kInFront) : placeOf(rank);
      counts.push_back(spreadTo(layers[rank], plan.virtualStages, place));
    }
    return counts;
  };
  return {placed([&](size_t rank) { return 2 * rank < stages ? Place::kBehind : Place::kInFront; }),
          placed([&](size_t rank) { return rank == 0 ? Place::kBehind : Place::kInFront; }),
          placed([&](size_t) { return Place::kInside; }),
          placed([&](size_t) { return Place::kBehind; })};
}

// Layers handed out to the virtual stages, of which the first and the last, that have the embedding
// and the head beside them, may stay without: each as long as the others. Where others would have
// none, as ends that take no time are no longer than they, the even cut.
Counts balancedCounts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  std::vector<StageBudget> chunks(static_cast<size_t>(plan.pp * plan.virtualStages),
                                  {Seconds(0), query.model.numLayers});
  chunks.front().fixed = blocks.embedding.forward + blocks.embedding.backward;
  chunks.back().fixed = blocks.head.forward + blocks.head.backward;
  const std::vector<int64_t> layers =
      balanceLayers(query.model.numLayers, blocks.layer.forward + blocks.layer.backward, 0, chunks);
  const bool hasGap = std::find(layers.begin() + 1, layers.end() - 1, 0) != layers.end() - 1;
  return countsOf(hasGap ? plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages)
                         : pinnedCut(layers, plan));
}

// The last chunk's layers on the others of its stage: the head is as much work as some layers.
Counts withHeadAlone(Counts counts) {
  std::vector<int64_t>& stage = counts.back();
  for (; stage.back() > 0; --stage.back()) ++*std::min_element(stage.begin(), stage.end() - 1);
  return counts;
}

// Of stages with one chunk: each layer to the stage that is shortest with it, CPU included.
Counts levelCounts(const plan::Plan& plan, int64_t layers, CutPlayer& player) {
  const auto stages = static_cast<size_t>(plan.pp);
  Counts counts(stages, {0});
  for (size_t rank = 1; rank + 1 < stages; ++rank) counts[rank] = {1};
  const auto with = [&](size_t rank) { return player.stageOf(rank, {counts[rank][0] + 1}).all; };
  std::vector<double> longer;
  for (size_t rank = 0; rank < stages; ++rank) longer.push_back(with(rank));
  for (int64_t left = layers - std::max<int64_t>(plan.pp - 2, 0); left > 0; --left) {
    const auto shortest =
        static_cast<size_t>(std::min_element(longer.begin(), longer.end()) - longer.begin());
    ++counts[shortest][0];
    longer[shortest] = with(shortest);
  }
  return counts;
}

// By the closed form the fastest cut's layers per stage, spread in several ways, and so those of
// the fastest with the longer chunks in front.
std::vector<Counts> startsOf(const Query& query, const plan::Plan& plan, CutSearch& cuts,
                             const std::vector<int64_t>& lowest, std::optional<Seconds> limit) {
  std::vector<Counts> starts = {
      countsOf(plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages))};
  const auto add = [&](const std::vector<int64_t>& layers) {
    for (Counts& counts : spreadsOf(plan, layers))
      if (std::find(starts.begin(), starts.end(), counts) == starts.end())
        starts.push_back(std::move(counts));
  };
  add(lowest);
  const bool isEvenlySpread =  // then it is the fastest with the rest in front as well
      std::all_of(lowest.begin(), lowest.end(),
                  [&](int64_t layers) { return layers % plan.virtualStages == 0; });
  if (isEvenlySpread) return starts;
  if (const auto typical = cuts.inFront(limit)) add(typical->layers);
  return starts;
}

// From the best of `starts`, with virtual stages of those with the head alone, else from each, and
// from chunks that take equally long.
std::optional<CutSearch::Cut> moved(const Query& query, const plan::Plan& plan,
                                    const BlockCosts& blocks, const std::vector<Counts>& starts,
                                    CutPlayer& player, Seconds limit) {
  std::vector<std::vector<Counts>> groups = {starts};
  if (plan.virtualStages > 1) {
    groups.emplace_back();
    for (const Counts& counts : starts) groups.back().push_back(withHeadAlone(counts));
  } else {
    for (const Counts& counts : starts) groups.push_back({counts});
  }
  groups.push_back({balancedCounts(query, plan, blocks)});
  std::optional<CutSearch::Cut> best;
  for (const auto& from : groups) {
    player.allow(kMostPasses, best ? std::min(limit, best->step * kDescended) : limit);
    for (const Counts& counts : from) player.play(counts);
    player.descend(kMostInVain);
    auto found = player.takeBest();
    if (found && (!best || found->step < best->step * (1 - kTie))) best = std::move(found);
  }
  return best;
}

}  // namespace

PlayedCut fastestPlayed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                        CutSearch& cuts, cost::FlushPlayer& flush, std::optional<Seconds> limit) {
  const Seconds infinite(std::numeric_limits<double>::infinity());
  const Seconds wide = limit ? *limit * kDescended : infinite;
  // Of a split backward nothing is beyond the space, and with all ways merged most plans are ruled
  // out.
  const bool isSplit = plan::splitsBackward(plan.schedule);
  if (isSplit && !cuts.lowest(limit, 1)) return {std::nullopt, infinite, std::nullopt};
  const auto lowest = cuts.lowest(isSplit ? limit : std::optional(wide));
  if (!lowest) return {std::nullopt, infinite, std::nullopt};
  DescribedStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, stages.pipeline(), stages.factor(), wide, kMostPasses);
  std::vector<Counts> starts = startsOf(query, plan, cuts, lowest->layers, wide);
  if (isSplit) {
    starts.push_back(levelCounts(plan, query.model.numLayers, player));
    if (const auto byStages = cuts.lowestByStages(wide))
      starts.push_back(countsOf(rangesOf(byStages->layers, 1)));
  }
  for (size_t i = 0; i < starts.size() && (i < 2 || player.mayPlay()); ++i) player.play(starts[i]);
  Seconds bound = lowest->step;
  if (player.best() && player.best()->step <= bound * (1 + 1e-9))
    bound = player.best()->step;
  else if (Enumeration(player, plan, query.model.numLayers, cuts.mostLayers()).isWhole())
    bound = player.best() ? player.best()->step : infinite;
  auto found = moved(query, plan, blocks, starts, player, wide);
  if (found && limit && found->step > *limit * (1 + kTie))
    return {std::nullopt, bound, std::move(found)};
  return {std::move(found), bound, std::nullopt};
}

ExactCuts exactPlayed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                      cost::FlushPlayer& flush, Seconds enough, int64_t& passes) {
  DescribedStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, stages.pipeline(), stages.factor(), std::nullopt, kMostPasses);
  return exactCuts({stages.pipeline(),
                    query.model.numLayers,
                    plan.virtualStages,
                    static_cast<size_t>(plan.pp),
                    Spread::kEven,
                    {},
                    enough,
                    1},
                   player, passes);
}

std::optional<CutSearch::Cut> polished(const Query& query, const plan::Plan& plan,
                                       const BlockCosts& blocks, cost::FlushPlayer& flush) {
  DescribedStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, stages.pipeline(), stages.factor(), std::nullopt,
                   kMostPassesOfPolish);
  if (!player.play(countsOf(plan.layers))) return std::nullopt;
  player.descend(kMostInVainOfFew);
  return player.takeBest();
}

// What is done once per step, which the relaxation does not know, is taken to be that of even
// chunks.
UnevenCut unevenCut(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                    SlotTable& slots, cost::FlushPlayer& flush, Seconds enough, UnevenWork& work) {
  LinearChunks chunks = describedChunks(query, plan, blocks, slots);
  std::vector<double> layers = chunks.levelled();
  const bool isRoomy = chunks.mayHold(layers);
  int64_t& passes = isRoomy ? work.played : work.relaxed;
  if (passes <= 0) return {};
  passes -= kPassesOfTry;
  DescribedStages stages(query, plan, blocks);
  CutPlayer player(stages, flush, stages.pipeline(), stages.factor(), std::nullopt, kMostPasses);
  if (!isRoomy) {
    const Counts even =
        countsOf(plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages));
    cost::OnceTimes onceOfAll;
    for (size_t rank = 0; rank < even.size(); ++rank)
      onceOfAll = longest(onceOfAll, player.stageOf(rank, even[rank]).once);
    const Seconds once = onceOfAll.total();
    int64_t left = std::min(passes, kMostPassesOfRelaxation);
    passes -= left;
    CutRelaxation::Result relaxed =
        CutRelaxation(std::move(chunks)).solve(Seconds(0), enough / stages.factor() - once, left);
    passes += left;
    if (relaxed.bound == kNoCut) return {false, {}};
    if ((relaxed.bound + once) * stages.factor() >= enough) return {};
    layers = std::move(relaxed.layers);
  }
  if (const auto counts = player.nearest(layers, query.model.numLayers, plan.virtualStages))
    player.play(*counts);
  player.descend(kMostInVainOfFew);
  passes -= player.numPasses();
  UnevenCut result{true, player.takeBest()};
  if (result.cut && result.cut->step >= enough) result.cut.reset();
  return result;
}

}  // namespace trireme::planner
