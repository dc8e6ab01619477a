#include "planner/exact_cuts.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cost_models/tail_player.h"
#include "planner/cuts.h"
#include "planner/rounding.h"
#include "planner/stage_options.h"

namespace trireme::planner {
namespace {

using cost::TailPlayer;

// Tasks of all tails together, each with a hundred bytes.
constexpr int64_t kMostTasks = 400'000;
// What a task of all lanes takes, in passes that are played one by one.
constexpr int64_t kPassesOfTask = 2;
constexpr int64_t kPassesOfOrder = 20;  // and to find its place
// Tails that are looked at together, so that no lane stays empty.
constexpr size_t kTailsTogether = 32;

class Branches {
 public:
  Branches(const ExactQuestion& question, CutPlayer& player, int64_t& passes)
      : question_(question),
        player_(player),
        passes_(passes),
        stages_(question.numStages),
        limit_(question.enough),
        options_(question, player),
        tails_(stages_) {}

  ExactCuts search() {
    if (passes_ <= 0 || !options_.find()) return {};
    if (!options_.mayHoldAll()) return {{}, limit_};
    Tail none;
    none.left = question_.numLayers;
    none.once = question_.leastOnce.count();
    none.options.resize(stages_);
    const bool isWhole = go(stages_, {std::move(none)});
    return {std::move(found_), isWhole ? limit_ : Seconds(0)};
  }

 private:
  // The last stages with their layers.
  struct Tail {
    std::vector<const StageOption*> options;  // by stage, null for the others
    int64_t left = 0;                         // layers, for the stages before
    double once = 0, flush = 0;               // at least
  };
  // A tail and what comes before it: an option of the stage, or any of a group.
  struct Branch {
    size_t tail = 0;
    const StageOption* option = nullptr;
    const OptionGroup* group = nullptr;
    int64_t unlikeness = 0;  // those that are like the stage behind take less

    const cost::StageTimes& times() const { return option ? option->stage->times : group->least; }
    double once() const { return option ? option->stage->once : group->once; }
  };

  bool isLast(size_t rank) const { return rank + 1 == stages_; }
  bool isSlow(double flush, double once) const {
    return Seconds((flush + once) * player_.factor()) >= limit_ * (1 - kTie);
  }
  bool isSlow(const Tail& tail) const { return isSlow(tail.flush, tail.once); }

  // `tails` begin with stage `end`. False: there is too much to look at.
  bool go(size_t end, const std::vector<Tail>& tails) {
    std::vector<Tail> some;
    for (size_t next = 0; next < tails.size();) {
      some.clear();
      for (; next < tails.size() && some.size() < kTailsTogether; ++next)
        if (!isSlow(tails[next])) some.push_back(tails[next]);
      if (end == 0) {
        for (const Tail& whole : some) keep(whole);
        continue;
      }
      std::vector<Tail> longer;
      if (!lengthen(end - 1, some, longer) || !go(end - 1, longer)) return false;
    }
    return true;
  }

  // By a stage before it, in all ways that are not slow, the fastest first.
  bool lengthen(size_t rank, const std::vector<Tail>& tails, std::vector<Tail>& longer) {
    if (!findPlayer(rank)) return false;
    std::vector<Branch> branches;
    for (size_t i = 0; i < tails.size(); ++i) addBranches(rank, i, tails[i], branches);
    if (!isLast(rank) && !dropGroups(rank, tails, branches)) return false;
    return playAll(rank, tails, branches, [&](const Branch& branch, double flush) {
      const Tail& tail = tails[branch.tail];
      const double once = std::max(tail.once, branch.once());
      if (isSlow(flush, once) || !player_.fits(rank, branch.option->counts)) return;
      const Tail next{tail.options, tail.left - branch.option->layers, once, flush};
      longer
          .insert(std::upper_bound(longer.begin(), longer.end(), next,
                                   [](const Tail& a, const Tail& b) { return a.flush < b.flush; }),
                  next)
          ->options[rank] = branch.option;
    });
  }

  void addBranches(size_t rank, size_t index, const Tail& tail, std::vector<Branch>& branches) {
    const int64_t fewest = tail.left - options_.mostBefore(rank);
    const int64_t most = tail.left - options_.leastBefore(rank);
    for (const StageOption& option : options_.of(rank)) {
      if (option.layers < fewest || option.layers > most) continue;
      Branch branch{index, &option};
      if (!isLast(rank))
        for (size_t c = 0; c < option.counts.size(); ++c)
          branch.unlikeness += std::abs(option.counts[c] - tail.options[rank + 1]->counts[c]);
      branches.push_back(branch);
    }
  }

  // Leaves out options with so many layers on a chunk that they are too slow whatever the other
  // chunks have. Looks at chunks longer than those of the stage behind, which such options have.
  bool dropGroups(size_t rank, const std::vector<Tail>& tails, std::vector<Branch>& branches) {
    const size_t chunks = static_cast<size_t>(question_.virtualStages);
    std::vector<std::vector<int64_t>> most(tails.size(), std::vector<int64_t>(chunks));
    std::vector<size_t> numBranches(tails.size());
    for (const Branch& branch : branches) {
      ++numBranches[branch.tail];
      for (size_t c = 0; c < chunks; ++c)
        most[branch.tail][c] = std::max(most[branch.tail][c], branch.option->counts[c]);
    }
    std::vector<Branch> groups;
    for (size_t i = 0; i < tails.size(); ++i) {
      if (numBranches[i] <= TailPlayer::kLanes) continue;
      for (const OptionGroup& group : options_.groupsOf(rank)) {
        const int64_t behind = tails[i].options[rank + 1]->counts[group.chunk];
        if (group.layers <= most[i][group.chunk] && group.layers > behind)
          groups.push_back({i, nullptr, &group, behind - group.layers});
      }
    }
    const bool isWhole = playAll(rank, tails, groups, [&](const Branch& branch, double flush) {
      if (!isSlow(flush, std::max(tails[branch.tail].once, branch.once()))) return;
      int64_t& ofChunk = most[branch.tail][branch.group->chunk];
      ofChunk = std::min(ofChunk, branch.group->layers - 1);
    });
    std::erase_if(branches, [&](const Branch& branch) {
      for (size_t c = 0; c < chunks; ++c)
        if (branch.option->counts[c] > most[branch.tail][c]) return true;
      return false;
    });
    return isWhole;
  }

  // Tells `visit` what flushes take at least. False: there is too much to look at.
  template <typename Visit>
  bool playAll(size_t rank, const std::vector<Tail>& tails, std::vector<Branch>& branches,
               const Visit& visit) {
    std::stable_sort(branches.begin(), branches.end(),
                     [](const Branch& a, const Branch& b) { return a.unlikeness < b.unlikeness; });
    TailPlayer& player = *tails_[rank];
    for (size_t begin = 0; begin < branches.size(); begin += TailPlayer::kLanes) {
      if (passes_ <= 0) return false;
      const size_t end = std::min(begin + TailPlayer::kLanes, branches.size());
      double shortest = kNoCut.count();
      for (size_t i = begin; i < end; ++i) {
        const Tail& tail = tails[branches[i].tail];
        shortest = std::min(shortest, std::max(tail.once, branches[i].once()));
        player.put(rank, i - begin, branches[i].times());
        for (size_t behind = rank + 1; behind < stages_; ++behind)
          player.put(behind, i - begin, tail.options[behind]->stage->times);
      }
      const int64_t before = player.numPlayed();
      const TailPlayer::Lanes flush =
          player.play(end - begin, limit_ / player_.factor() - Seconds(shortest));
      passes_ -= (player.numPlayed() - before) * kPassesOfTask;
      for (size_t i = begin; i < end; ++i) visit(branches[i], flush[i - begin]);
    }
    return true;
  }

  // False: tails would take too much memory.
  bool findPlayer(size_t rank) {
    if (tails_[rank] != nullptr) return true;
    const bool splits = plan::splitsBackward(question_.pipeline.schedule);
    const int64_t numTasks = static_cast<int64_t>(stages_ - rank) * question_.virtualStages *
                             question_.pipeline.numMicrobatches * (splits ? 3 : 2);
    numTasks_ += numTasks;
    if (numTasks_ > kMostTasks) return false;
    passes_ -= numTasks * kPassesOfOrder;
    const cost::Pipeline& least = options_.least();
    tails_[rank] = std::make_unique<TailPlayer>(player_.orderOf(least, rank), least, rank);
    return true;
  }

  void keep(const Tail& whole) {
    if (isSlow(whole)) return;  // by now
    Counts counts;
    for (const StageOption* option : whole.options) counts.push_back(option->counts);
    const int64_t before = player_.numPasses();
    const Seconds step = player_.timeOf(counts);
    passes_ -= player_.numPasses() - before;
    if (step >= limit_ * (1 - kTie)) return;
    const auto place =
        std::upper_bound(found_.begin(), found_.end(), step,
                         [](Seconds a, const CutSearch::Cut& b) { return a < b.step; });
    found_.insert(place, {rangesFrom(counts), step});
    if (found_.size() > question_.most) found_.pop_back();
    if (found_.size() == question_.most) limit_ = found_.back().step;
  }

  const ExactQuestion& question_;
  CutPlayer& player_;
  int64_t& passes_;
  const size_t stages_;
  Seconds limit_;
  StageOptions options_;
  std::vector<std::unique_ptr<TailPlayer>> tails_;  // by their first stage
  int64_t numTasks_ = 0;                            // of all of them
  std::vector<CutSearch::Cut> found_;
};

}  // namespace

bool isKnownToExactCuts(const cost::Pipeline& pipeline) {
  return !pipeline.postValidation && pipeline.schedule != plan::ScheduleKind::kGpipe;
}

ExactCuts exactCuts(const ExactQuestion& question, CutPlayer& player, int64_t& passes) {
  if (!isKnownToExactCuts(question.pipeline)) return {};
  return Branches(question, player, passes).search();
}

}  // namespace trireme::planner
