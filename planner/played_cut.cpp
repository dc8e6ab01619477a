#include "planner/played_cut.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "cost_models/described_memory.h"
#include "cost_models/play.h"
#include "planner/cuts.h"

namespace trireme::planner {
namespace {

using Counts = std::vector<std::vector<int64_t>>;  // of layers, by stage and chunk

constexpr double kTie = 1e-12;
// Passes of a chunk to be played for one plan, but for the first cut: less than a millisecond.
constexpr int64_t kMostPasses = 64000;
// Cuts that are looked at, of which most are too slow by the closed form, for one plan.
constexpr int64_t kMostLooks = 200;
// Chunks that a layer is moved from and to in one step of the descent.
constexpr size_t kMostEnds = 3;

bool isFaster(Seconds a, Seconds b) { return a < b * (1 - kTie); }

class Player {
 public:
  Player(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
         std::optional<Seconds> limit)
      : query_(query),
        blocks_(blocks),
        plan_(withoutLayers(plan)),
        setting_(*blocks.described, query.model, plan_, query.cluster, query.stack.description),
        factor_(cost::stepFactor(plan_, query.cluster, query.stack.description)),
        limit_(limit ? *limit * (1 + kTie) : Seconds(std::numeric_limits<double>::infinity())) {
    pipeline_.schedule = plan.schedule;
    pipeline_.numMicrobatches = plan.numMicrobatches();
    pipeline_.overlapTransfers = false;
    pipeline_.hop = cost::transferTime(query.model, plan_, query.cluster, query.stack.description);
    pipeline_.stages.resize(plan_.layers.size());
  }

  bool mayPlay() const { return numPasses_ < kMostPasses; }
  bool mayLook() { return ++numLooks_ < kMostLooks; }
  // What counts so far: nothing slower is of interest.
  Seconds limit() const { return best_ ? std::min(limit_, best_->step) : limit_; }
  const std::optional<CutSearch::Cut>& best() const { return best_; }

  // One stage with some layers.
  struct Stage {
    cost::StageTimes times;
    double all = 0, first = 0, last = 0, once = 0;  // its part of the closed form
    std::optional<bool> fits;
  };
  Stage& stageOf(size_t rank, const std::vector<int64_t>& counts) {
    const auto [place, isNew] = known_.try_emplace({rank, counts});
    if (!isNew) return place->second;
    setLayers(rank, counts);
    cost::StageEstimate estimate = cost::estimateStage(setting_, rank);
    const auto pass = [&](size_t c) {
      return (estimate.times.forward[c] + estimate.times.backward[c] + pipeline_.hop * 2).count();
    };
    Stage& stage = place->second;
    for (size_t c = 0; c < counts.size(); ++c) stage.all += pass(c);
    stage.first = pass(0);
    stage.last = pass(counts.size() - 1);
    stage.once = estimate.once.total().count();
    stage.times = std::move(estimate.times);
    return stage;
  }
  bool fits(size_t rank, const std::vector<int64_t>& counts) {
    Stage& stage = stageOf(rank, counts);
    if (stage.fits) return *stage.fits;
    setLayers(rank, counts);
    const cost::MemoryUse use = cost::describedMemoryOf(*blocks_.described, query_.model, plan_,
                                                        query_.stack.description, rank);
    return stage.fits.emplace(use.total() <= query_.cluster.device.memory);
  }

  // Whether it is the best so far. Does nothing where a stage does not fit.
  bool play(const Counts& counts) {
    for (size_t rank = 0; rank < counts.size(); ++rank)
      if (!fits(rank, counts[rank])) return false;
    double once = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      const Stage& stage = stageOf(rank, counts[rank]);
      pipeline_.stages[rank] = stage.times;
      once = std::max(once, stage.once);
    }
    numPasses_ += passesOfOne();
    const Seconds step = (cost::flushTime(pipeline_) + Seconds(once)) * factor_;
    if (step > limit_ || (best_ && !isFaster(step, best_->step))) return false;
    best_ = {rangesFrom(counts), step};
    counts_ = counts;
    return true;
  }

  // Moves layers as long as the best becomes faster by it.
  void descend() {
    while (best_ && mayPlay() && stepDown()) continue;
  }

  int64_t passesOfOne() const {
    return 2 * plan_.numMicrobatches() * plan_.pp * plan_.virtualStages;
  }
  double factor() const { return factor_; }

 private:
  struct Chunk {
    size_t rank = 0, chunk = 0;
  };

  static plan::Plan withoutLayers(const plan::Plan& plan) {
    plan::Plan bare = plan;
    bare.layers.assign(static_cast<size_t>(plan.pp),
                       std::vector<plan::LayerRange>(static_cast<size_t>(plan.virtualStages)));
    return bare;
  }
  void setLayers(size_t rank, const std::vector<int64_t>& counts) {
    for (size_t c = 0; c < counts.size(); ++c) plan_.layers[rank][c].count = counts[c];
  }
  int64_t least(const Chunk& at) const {
    const bool isFirst = at.rank == 0 && at.chunk == 0;
    const bool isLast = at.rank + 1 == counts_.size() && at.chunk + 1 == counts_[at.rank].size();
    return isFirst || isLast ? 0 : 1;
  }

  // All chunks, those first that the critical path of the best cut passes most often.
  std::vector<Chunk> byPasses() {
    for (size_t rank = 0; rank < counts_.size(); ++rank)
      pipeline_.stages[rank] = stageOf(rank, counts_[rank]).times;
    numPasses_ += passesOfOne();
    std::vector<std::pair<double, Chunk>> passed;
    for (size_t rank = 0; rank < counts_.size(); ++rank)
      for (size_t c = 0; c < counts_[rank].size(); ++c) passed.push_back({0, {rank, c}});
    const size_t chunks = counts_.front().size();
    const BlockCosts& b = blocks_;
    for (const cost::PathItem& item : cost::play(pipeline_, false).path)
      passed[static_cast<size_t>(item.stage) * chunks + static_cast<size_t>(item.chunk)].first +=
          (item.direction == program::Direction::kForward ? b.layer.forward : b.layer.backward)
              .count();
    std::stable_sort(passed.begin(), passed.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<Chunk> order;
    for (const auto& [time, chunk] : passed) order.push_back(chunk);
    return order;
  }

  bool stepDown() {
    const std::vector<Chunk> order = byPasses();
    const Counts from = counts_;
    std::vector<Chunk> givers;
    for (const Chunk& at : order)
      if (givers.size() < kMostEnds && from[at.rank][at.chunk] > least(at)) givers.push_back(at);
    bool helped = false;
    for (const Chunk& giver : givers)
      for (size_t i = 0; i < std::min(kMostEnds, order.size()) && mayPlay(); ++i) {
        const Chunk& taker = order[order.size() - 1 - i];
        if (taker.rank == giver.rank && taker.chunk == giver.chunk) continue;
        Counts moved = from;
        --moved[giver.rank][giver.chunk];
        ++moved[taker.rank][taker.chunk];
        helped = play(moved) || helped;
      }
    return helped;
  }

  const Query& query_;
  const BlockCosts& blocks_;
  plan::Plan plan_;
  const cost::StageSetting setting_;  // of plan_
  const double factor_;
  const Seconds limit_;
  cost::Pipeline pipeline_;
  std::map<std::pair<size_t, std::vector<int64_t>>, Stage> known_;
  std::optional<CutSearch::Cut> best_;
  Counts counts_;  // of the best
  int64_t numPasses_ = 0, numLooks_ = 0;
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
  Enumeration(Player& player, const plan::Plan& plan, int64_t layers, std::vector<int64_t> most)
      : player_(player),
        microbatches_(static_cast<double>(plan.numMicrobatches())),
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
    double through = 0, longest = 0, once = 0;
  };

  Path after(const Path& before, const Player::Stage& stage) const {
    return {before.through + stage.first,
            std::max(before.longest + stage.last, stage.all * microbatches_ + before.through),
            std::max(before.once, stage.once)};
  }
  bool isSlow(const Path& path) const {
    return Seconds((path.longest + path.once) * player_.factor()) > player_.limit() * (1 + 1e-9);
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
            if (!player_.mayLook()) return false;
            const Player::Stage& stage = player_.stageOf(rank, counts);
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

  Player& player_;
  const double microbatches_;
  const size_t chunks_;
  const std::vector<int64_t> most_;
  std::vector<int64_t> mostBehind_;
  Counts counts_;
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

std::vector<Counts> startsOf(const plan::Plan& plan, const std::vector<int64_t>& layers) {
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

Counts evenCounts(const plan::Plan& plan, int64_t layers) {
  Counts counts;
  for (const auto& stage : plan::evenLayers(layers, plan.pp, plan.virtualStages)) {
    counts.emplace_back();
    for (const plan::LayerRange& range : stage) counts.back().push_back(range.count);
  }
  return counts;
}

}  // namespace

PlayedCut fastestPlayed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                        CutSearch& cuts, std::optional<Seconds> limit) {
  const Seconds infinite(std::numeric_limits<double>::infinity());
  const auto lowest = cuts.lowest(limit);
  if (!lowest) return {std::nullopt, infinite};
  Player player(query, plan, blocks, limit);
  player.play(evenCounts(plan, query.model.numLayers));
  std::vector<Counts> starts = startsOf(plan, lowest->layers);
  const bool isEvenlySpread =  // then it is the fastest with the rest in front as well
      std::all_of(lowest->layers.begin(), lowest->layers.end(),
                  [&](int64_t layers) { return layers % plan.virtualStages == 0; });
  const auto typical = isEvenlySpread ? std::nullopt : cuts.inFront(limit);
  if (typical && typical->layers != lowest->layers)
    for (Counts& counts : startsOf(plan, typical->layers)) starts.push_back(std::move(counts));
  for (size_t i = 0; i < starts.size(); ++i)
    if (std::find(starts.begin(), starts.begin() + static_cast<long>(i), starts[i]) ==
            starts.begin() + static_cast<long>(i) &&
        (i == 0 || player.mayPlay()))
      player.play(starts[i]);
  if (player.best() && player.best()->step <= lowest->step * (1 + 1e-9))
    return {player.best(), player.best()->step};
  if (Enumeration(player, plan, query.model.numLayers, cuts.mostLayers()).isWhole())
    return {player.best(), player.best() ? player.best()->step : infinite};
  player.descend();
  return {player.best(), lowest->step};
}

}  // namespace trireme::planner
