#include "planner/exact_cuts.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cost_models/tail_player.h"
#include "planner/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

using cost::TailPlayer;

// Ways to cut one stage: more are too many to look at.
constexpr size_t kMostOptions = 2000;  // that fit
constexpr double kMostWays = 8000;     // whether they fit or not
// Tasks of all tails together, each with a hundred bytes.
constexpr int64_t kMostTasks = 400'000;
// What a task of all lanes takes, in passes that are played one by one.
constexpr int64_t kPassesOfTask = 2;
constexpr int64_t kPassesOfOrder = 20;  // and to find its place

class Branches {
 public:
  Branches(const ExactQuestion& question, CutPlayer& player, int64_t& passes)
      : question_(question),
        player_(player),
        passes_(passes),
        stages_(question.numStages),
        stop_(question.pipeline.overlapTransfers ? 0 : question.pipeline.hop.count()),
        limit_(question.enough),
        counts_(stages_) {}

  ExactCuts search() {
    least_ = question_.pipeline;
    for (size_t rank = 0; rank < stages_; ++rank) least_.stages.push_back(leastOf(rank).times);
    findOthers();
    findMost();
    if (passes_ <= 0 || !findOptions()) return {};
    if (!limitByOptions()) return {{}, limit_};
    tails_.resize(stages_);
    behind_.resize(stages_);
    const bool isWhole = go(stages_ - 1, question_.numLayers, question_.leastOnce.count());
    return {std::move(found_), isWhole ? limit_ : Seconds(0)};
  }

 private:
  struct Option {
    std::vector<int64_t> counts;
    int64_t layers = 0;
    const CutPlayer::Stage* stage = nullptr;
  };
  // An option of a stage, and what the flush and what follows it take with it at least.
  struct Branch {
    const Option* option = nullptr;
    double flush = 0;
  };

  bool splits() const { return plan::splitsBackward(question_.pipeline.schedule); }

  bool isFirst(size_t rank) const { return rank == 0; }
  bool isLast(size_t rank) const { return rank + 1 == stages_; }
  int64_t leastLayers(size_t rank) const {
    return player_.takesEmptyEnds() && (isFirst(rank) || isLast(rank)) ? question_.virtualStages - 1
                                                                       : question_.virtualStages;
  }
  // With as few layers as it may have.
  CutPlayer::Stage& leastOf(size_t rank) {
    std::vector<int64_t> counts(static_cast<size_t>(question_.virtualStages), 1);
    if (player_.takesEmptyEnds() && isFirst(rank)) counts.front() = 0;
    if (player_.takesEmptyEnds() && isLast(rank)) counts.back() = 0;
    return player_.stageOf(rank, counts);
  }
  bool isSlow(double flush, double once) const {
    return Seconds((flush + once) * player_.factor()) >= limit_ * (1 - kTie);
  }

  // What a pipeline takes in which a stage is the busiest (cost::pipelineTime).
  double pathOf(size_t rank, const CutPlayer::Stage& stage) const {
    double work = 0;
    for (const auto* times : {&stage.times.forward, &stage.times.backward, &stage.times.weights})
      for (const Seconds time : *times) work += time.count();
    const double stops = 2 * stop_ * static_cast<double>(question_.virtualStages);
    return (work + stops) * static_cast<double>(question_.pipeline.numMicrobatches) + others_[rank];
  }

  // The least of the other stages on that path: the first chunks of those before it, the last ones
  // of those behind.
  void findOthers() {
    const double transfer = question_.pipeline.hop.count();
    const auto pass = [&](size_t rank, size_t chunk) {
      const cost::StageTimes& times = least_.stages[rank];
      const double forward = times.forward[chunk].count() + transfer;
      return splits() ? forward : forward + times.backward[chunk].count() + transfer;
    };
    others_.assign(stages_, 0);
    for (size_t rank = 0; rank < stages_; ++rank) {
      for (size_t before = 0; before < rank; ++before) others_[rank] += pass(before, 0);
      if (splits()) continue;
      const auto last = static_cast<size_t>(question_.virtualStages) - 1;
      for (size_t after = rank + 1; after < stages_; ++after) others_[rank] += pass(after, last);
    }
  }

  // Whether no cut with so many layers on the stage is fast enough, and whether none with more is.
  // Of even chunks the one of an end has one of the rest or not, and all else is the same.
  struct Excess {
    bool isTooMuch, isMoreToo;
  };
  Excess excessOf(size_t rank, int64_t layers) {
    std::vector<int64_t> counts = spreadOver(layers, question_.virtualStages);
    if (isLast(rank) && counts.front() == 0) std::reverse(counts.begin(), counts.end());
    Excess excess{true, true};
    for (int i = 0; i < 2; ++i) {
      const CutPlayer::Stage& stage = player_.stageOf(rank, counts);
      const double path = pathOf(rank, stage);
      const double once = question_.spread == Spread::kEven ? stage.once : 0;
      excess.isTooMuch &= isSlow(path, std::max(once, question_.leastOnce.count()));
      excess.isMoreToo &= isSlow(path, question_.leastOnce.count());
      if (counts.front() > 0 && counts.back() > 0) std::reverse(counts.begin(), counts.end());
    }
    return excess;
  }

  void findMost() {
    mostBefore_ = {0};
    leastBefore_ = {0};
    for (size_t rank = 0; rank < stages_; ++rank) {
      int64_t most = leastLayers(rank) - 1;
      for (int64_t layers = most + 1; layers <= question_.numLayers; ++layers) {
        const Excess excess = excessOf(rank, layers);
        if (!excess.isTooMuch) most = layers;
        if (excess.isMoreToo) break;
      }
      most_.push_back(most);
      mostBefore_.push_back(mostBefore_.back() + most);
      leastBefore_.push_back(leastBefore_.back() + leastLayers(rank));
    }
  }

  // False: there are too many.
  bool findOptions() {
    options_.resize(stages_);
    std::vector<int64_t> fewest;
    for (size_t rank = 0; rank < stages_; ++rank) {
      const int64_t others = mostBefore_.back() - most_[rank];
      fewest.push_back(std::max(leastLayers(rank), question_.numLayers - others));
      double ways = 0;
      for (int64_t layers = fewest[rank]; layers <= most_[rank]; ++layers)
        ways += waysToSpread(layers);
      if (ways > kMostWays) return false;
    }
    for (size_t rank = 0; rank < stages_; ++rank)
      for (int64_t layers = fewest[rank]; layers <= most_[rank]; ++layers)
        if (!addOptions(rank, layers)) return false;
    return true;
  }

  // As memory allows. False: no cut fits and is fast enough.
  bool limitByOptions() {
    for (size_t rank = 0; rank < stages_; ++rank) {
      const std::vector<Option>& options = options_[rank];  // by layers
      if (options.empty()) return false;
      mostBefore_[rank + 1] = mostBefore_[rank] + options.back().layers;
      leastBefore_[rank + 1] = leastBefore_[rank] + options.front().layers;
    }
    return leastBefore_.back() <= question_.numLayers && question_.numLayers <= mostBefore_.back();
  }

  // Of chunks that all have a layer: v of n layers, (n mod v) or (v - 1) of (n - 1).
  double waysToSpread(int64_t layers) const {
    const int64_t v = question_.virtualStages;
    const bool isEven = question_.spread == Spread::kEven;
    const int64_t of = isEven ? v : layers - 1, picked = isEven ? layers % v : v - 1;
    double ways = 1;
    for (int64_t i = 0; i < picked; ++i)
      ways *= static_cast<double>(of - i) / static_cast<double>(i + 1);
    return ways;
  }

  // False: there are too many.
  bool addOptions(size_t rank, int64_t layers) {
    std::vector<int64_t> counts(static_cast<size_t>(question_.virtualStages));
    const bool isEven = question_.spread == Spread::kEven;
    const int64_t fewest = isEven ? layers / question_.virtualStages : 0;
    return spread(rank, fewest, isEven ? fewest + 1 : layers, 0, layers, counts);
  }

  // The ways to have `left` layers on the chunks from `chunk` on, each within the limits.
  bool spread(size_t rank, int64_t fewest, int64_t most, size_t chunk, int64_t left,
              std::vector<int64_t>& counts) {
    if (chunk == counts.size()) return left > 0 || addOption(rank, counts);
    const auto behind = static_cast<int64_t>(counts.size() - chunk) - 1;
    for (int64_t n = std::max({leastOn(rank, chunk), fewest, left - most * behind});
         n <= std::min(most, left); ++n) {
      counts[chunk] = n;
      if (!spread(rank, fewest, most, chunk + 1, left - n, counts)) return false;
    }
    return true;
  }
  int64_t leastOn(size_t rank, size_t chunk) const {
    const bool isEnd = (isFirst(rank) && chunk == 0) ||
                       (isLast(rank) && static_cast<int64_t>(chunk) + 1 == question_.virtualStages);
    return player_.takesEmptyEnds() && isEnd ? 0 : 1;
  }

  bool addOption(size_t rank, const std::vector<int64_t>& counts) {
    if (!player_.fits(rank, counts)) return true;
    Option option{counts, 0, &player_.stageOf(rank, counts)};
    for (const int64_t n : counts) option.layers += n;
    if (isSlow(pathOf(rank, *option.stage), option.stage->once)) return true;
    options_[rank].push_back(std::move(option));
    return options_[rank].size() <= kMostOptions;
  }

  // False: there is too much to look at.
  bool go(size_t rank, int64_t left, double once) {
    std::vector<Branch> branches;
    if (!findBranches(rank, left, once, branches)) return false;
    for (const Branch& branch : branches) {
      const double longest = std::max(once, branch.option->stage->once);
      if (isSlow(branch.flush, longest)) continue;  // by now
      counts_[rank] = branch.option->counts;
      behind_[rank] = &branch.option->stage->times;
      if (rank == 0)
        keep();
      else if (!go(rank - 1, left - branch.option->layers, longest))
        return false;
    }
    return true;
  }

  // Those that are not slow, the fastest first.
  bool findBranches(size_t rank, int64_t left, double once, std::vector<Branch>& branches) {
    const int64_t fewest = left - mostBefore_[rank], most = left - leastBefore_[rank];
    std::vector<const Option*> options;
    for (const Option& option : options_[rank])
      if (option.layers >= fewest && option.layers <= most) options.push_back(&option);
    if (options.empty()) return true;
    if (!isLast(rank)) sortByLikeness(options, counts_[rank + 1]);
    if (!findTail(rank)) return false;
    TailPlayer& tail = *tails_[rank];
    for (size_t behind = rank + 1; behind < stages_; ++behind) tail.put(behind, *behind_[behind]);
    for (size_t begin = 0; begin < options.size(); begin += TailPlayer::kLanes) {
      if (passes_ <= 0) return false;
      const size_t end = std::min(begin + TailPlayer::kLanes, options.size());
      double shortest = options[begin]->stage->once;
      for (size_t i = begin; i < end; ++i) {
        tail.put(rank, i - begin, options[i]->stage->times);
        shortest = std::min(shortest, options[i]->stage->once);
      }
      const int64_t before = tail.numPlayed();
      const TailPlayer::Lanes flush =
          tail.play(end - begin, limit_ / player_.factor() - Seconds(std::max(once, shortest)));
      passes_ -= (tail.numPlayed() - before) * kPassesOfTask;
      for (size_t i = begin; i < end; ++i)
        if (!isSlow(flush[i - begin], std::max(once, options[i]->stage->once)))
          branches.push_back({options[i], flush[i - begin]});
    }
    std::stable_sort(branches.begin(), branches.end(),
                     [](const Branch& a, const Branch& b) { return a.flush < b.flush; });
    return true;
  }

  // False: tails would take too much memory.
  bool findTail(size_t rank) {
    if (tails_[rank] != nullptr) return true;
    const int64_t numTasks = static_cast<int64_t>(stages_ - rank) * question_.virtualStages *
                             question_.pipeline.numMicrobatches * (splits() ? 3 : 2);
    numTasks_ += numTasks;
    if (numTasks_ > kMostTasks) return false;
    passes_ -= numTasks * kPassesOfOrder;
    tails_[rank] = std::make_unique<TailPlayer>(player_.orderOf(least_, rank), least_, rank);
    return true;
  }

  // Those first that are like the stage behind: the others are soon known to be slow, all that are
  // played side by side.
  static void sortByLikeness(std::vector<const Option*>& options,
                             const std::vector<int64_t>& counts) {
    std::vector<std::pair<int64_t, const Option*>> byDistance;
    byDistance.reserve(options.size());
    for (const Option* option : options) {
      int64_t distance = 0;
      for (size_t c = 0; c < counts.size(); ++c)
        distance += std::abs(option->counts[c] - counts[c]);
      byDistance.emplace_back(distance, option);
    }
    std::stable_sort(byDistance.begin(), byDistance.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < options.size(); ++i) options[i] = byDistance[i].second;
  }

  void keep() {
    const int64_t before = player_.numPasses();
    const Seconds step = player_.timeOf(counts_);
    passes_ -= player_.numPasses() - before;
    if (step >= limit_ * (1 - kTie)) return;
    const auto place =
        std::upper_bound(found_.begin(), found_.end(), step,
                         [](Seconds a, const CutSearch::Cut& b) { return a < b.step; });
    found_.insert(place, {rangesFrom(counts_), step});
    if (found_.size() > question_.most) found_.pop_back();
    if (found_.size() == question_.most) limit_ = found_.back().step;
  }

  const ExactQuestion& question_;
  CutPlayer& player_;
  int64_t& passes_;
  const size_t stages_;
  const double stop_;  // of a transfer, s, as part of a pass
  Seconds limit_;
  std::vector<double> others_;                     // by stage
  std::vector<int64_t> most_;                      // layers, by stage
  std::vector<int64_t> mostBefore_, leastBefore_;  // of all stages before one
  std::vector<std::vector<Option>> options_;       // by stage
  cost::Pipeline least_;
  std::vector<std::unique_ptr<TailPlayer>> tails_;  // by their first stage
  int64_t numTasks_ = 0;                            // of all of them
  std::vector<const cost::StageTimes*> behind_;     // times of the stages that are fixed
  Counts counts_;
  std::vector<CutSearch::Cut> found_;
};

}  // namespace

ExactCuts exactCuts(const ExactQuestion& question, CutPlayer& player, int64_t& passes) {
  const cost::Pipeline& pipeline = question.pipeline;
  if (pipeline.postValidation || pipeline.schedule == plan::ScheduleKind::kGpipe) return {};
  return Branches(question, player, passes).search();
}

}  // namespace trireme::planner
