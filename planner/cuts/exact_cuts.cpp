#include "planner/cuts/exact_cuts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "cost_models/tail_player.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/stage_options.h"
#include "planner/rounding.h"

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
    const bool isWhole =
        go(stages_, {{nullptr, nullptr, question_.numLayers, question_.leastOnce, 0}});
    return {std::move(found_), isWhole ? limit_ : Seconds(0)};
  }

 private:
  // The last stages with their layers: one, and those behind it.
  struct Tail {
    const StageOption* option = nullptr;  // null: of no stage
    const Tail* behind = nullptr;
    int64_t left = 0;      // layers, for the stages before
    cost::OnceTimes once;  // at least, as `flush`
    double flush = 0;
  };
  // A tail and what comes before it: an option of the stage, or any of a group.
  struct Branch {
    size_t tail = 0;
    const StageOption* option = nullptr;
    const OptionGroup* group = nullptr;
    int64_t unlikeness = 0;  // those that are like the stage behind take less

    const cost::StageTimes& times() const { return option ? option->stage->times : group->least; }
    const cost::OnceTimes& once() const { return option ? option->stage->once : group->once; }
  };

  bool isLast(size_t rank) const { return rank + 1 == stages_; }
  bool isSlow(double flush, const cost::OnceTimes& once) const {
    return (Seconds(flush) + once.total()) * player_.factor() >= limit_ * (1 - kTie);
  }
  bool isSlow(const Tail& tail) const { return isSlow(tail.flush, tail.once); }

  // `tails`, the fastest first, begin with stage `end`. False: there is too much to look at.
  bool go(size_t end, const std::vector<Tail>& tails) {
    std::vector<Tail> some;
    for (size_t next = 0; next < tails.size();) {
      some.clear();
      for (; next < tails.size() && some.size() < kTailsTogether; ++next)
        if (!isSlow(tails[next])) some.push_back(tails[next]);
      if (end == 0) {
        for (const Tail& whole : some) {
          if (passes_ <= 0) return false;
          keep(whole);
        }
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
    std::vector<std::vector<int64_t>> most;
    if (!isLast(rank) && !findMost(rank, tails, most)) return false;
    std::vector<Branch> branches;
    for (size_t i = 0; i < tails.size(); ++i)
      for (const StageOption& option : optionsOf(rank, tails[i]))
        if (isLast(rank) || isWithin(option.counts, most[i]))
          branches.push_back({i, &option, nullptr, unlikeness(option, tails[i])});
    const bool isWhole = playAll(rank, tails, branches, [&](const Branch& branch, double flush) {
      const Tail& tail = tails[branch.tail];
      const cost::OnceTimes once = longest(tail.once, branch.once());
      if (!isSlow(flush, once) && player_.fits(rank, branch.option->counts))
        longer.push_back({branch.option, &tail, tail.left - branch.option->layers, once, flush});
    });
    std::stable_sort(longer.begin(), longer.end(),
                     [](const Tail& a, const Tail& b) { return a.flush < b.flush; });
    return isWhole;
  }

  // With which the stages before can have the other layers.
  std::span<const StageOption> optionsOf(size_t rank, const Tail& tail) const {
    const std::vector<StageOption>& options = options_.of(rank);
    const auto isFewer = [](const StageOption& option, int64_t n) { return option.layers < n; };
    const auto first = std::lower_bound(options.begin(), options.end(),
                                        tail.left - options_.mostBefore(rank), isFewer);
    const auto last =
        std::lower_bound(first, options.end(), tail.left - options_.leastBefore(rank) + 1, isFewer);
    return {first, last};
  }
  static int64_t unlikeness(const StageOption& option, const Tail& tail) {
    if (tail.option == nullptr) return 0;
    int64_t sum = 0;
    for (size_t c = 0; c < option.counts.size(); ++c)
      sum += std::abs(option.counts[c] - tail.option->counts[c]);
    return sum;
  }
  static bool isWithin(const std::vector<int64_t>& counts, const std::vector<int64_t>& most) {
    for (size_t c = 0; c < counts.size(); ++c)
      if (counts[c] > most[c]) return false;
    return true;
  }

  // By tail, layers of every chunk beyond which an option is too slow whatever the other chunks
  // have. Looks at chunks longer than those of the stage behind, which such options have. False:
  // there is too much to look at.
  bool findMost(size_t rank, const std::vector<Tail>& tails,
                std::vector<std::vector<int64_t>>& most) {
    const auto chunks = static_cast<size_t>(question_.virtualStages);
    most.assign(tails.size(), std::vector<int64_t>(chunks, question_.numLayers));
    std::vector<Branch> groups;
    for (size_t i = 0; i < tails.size(); ++i) {
      const auto options = optionsOf(rank, tails[i]);
      if (options.size() <= TailPlayer::kLanes) continue;
      for (const OptionGroup& group : options_.groupsOf(rank)) {
        const int64_t behind = tails[i].option->counts[group.chunk];
        if (group.layers > behind && group.fewest <= options.back().layers)
          groups.push_back({i, nullptr, &group, group.layers - behind});
      }
    }
    return playAll(rank, tails, groups, [&](const Branch& branch, double flush) {
      if (!isSlow(flush, longest(tails[branch.tail].once, branch.once()))) return;
      int64_t& ofChunk = most[branch.tail][branch.group->chunk];
      ofChunk = std::min(ofChunk, branch.group->layers - 1);
    });
  }

  // Tells `visit` what flushes take at least. False: there is too much to look at.
  template <typename Visit>
  bool playAll(size_t rank, const std::vector<Tail>& tails, std::vector<Branch>& branches,
               const Visit& visit) {
    std::stable_sort(branches.begin(), branches.end(),
                     [](const Branch& a, const Branch& b) { return a.unlikeness < b.unlikeness; });
    TailPlayer& player = *tails_[rank];
    std::array<const Tail*, TailPlayer::kLanes> put{};  // by lane
    for (size_t begin = 0; begin < branches.size(); begin += TailPlayer::kLanes) {
      if (passes_ <= 0) return false;
      const size_t end = std::min(begin + TailPlayer::kLanes, branches.size());
      Seconds shortest = kNoCut;
      for (size_t i = begin; i < end; ++i) {
        const Tail& tail = tails[branches[i].tail];
        shortest = std::min(shortest, longest(tail.once, branches[i].once()).total());
        player.put(rank, i - begin, branches[i].times());
        if (std::exchange(put[i - begin], &tail) == &tail) continue;
        size_t stage = rank;
        for (const Tail* behind = &tail; behind->option != nullptr; behind = behind->behind)
          player.put(++stage, i - begin, behind->option->stage->times);
      }
      const int64_t before = player.numPlayed();
      const TailPlayer::Lanes flush =
          player.play(end - begin, limit_ / player_.factor() - shortest);
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
    for (const Tail* tail = &whole; tail->option != nullptr; tail = tail->behind)
      counts.push_back(tail->option->counts);
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

ExactCuts exactCuts(const ExactQuestion& question, CutPlayer& player, int64_t& passes) {
  const cost::Pipeline& pipeline = question.pipeline;
  if (pipeline.postValidation || pipeline.schedule == plan::ScheduleKind::kGpipe) return {};
  return Branches(question, player, passes).search();
}

}  // namespace trireme::planner
