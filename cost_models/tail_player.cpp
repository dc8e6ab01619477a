#include "cost_models/tail_player.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

// Into functions for other processors, which a call would leave.
#define TRIREME_INLINE __attribute__((always_inline)) inline

namespace trireme::cost {
namespace {

using program::Direction;
using schedule::Task;

constexpr size_t kTasksToLook = 48;  // of every rank, after which the play may end
constexpr size_t kDirections = 3;
constexpr uint32_t kNotYet = std::numeric_limits<uint32_t>::max();

size_t side(Direction direction) {
  return direction == Direction::kForward ? 0 : direction == Direction::kBackward ? 1 : 2;
}

TailPlayer::Lanes filled(double value) {
  TailPlayer::Lanes lanes;
  lanes.fill(value);
  return lanes;
}

}  // namespace

// The inner loops, of as many lanes at once as the processor takes. All results are the same to the
// bit, but for what is left.
struct TailPlayer::Engine {
  void (*play)(TailPlayer&, size_t begin, size_t end);  // steps
  void (*addLeft)(const Lanes* durations, const double* left, size_t count, Lanes& end);

  template <size_t kWidth, bool kUsesSlots>
  TRIREME_INLINE static void playSteps(TailPlayer& p, size_t begin, size_t end) {
    typedef double Vector __attribute__((vector_size(kWidth * sizeof(double))));
    for (size_t i = begin; i < end; ++i) {
      const Step& step = p.steps_[i];
      const double* const input = p.ends_[step.input].data();
      const double* const slot = p.ends_[step.slot].data();
      const double* const before = p.ends_[step.before].data();
      const double* const duration = p.durations_[step.duration].data();
      double* const result = p.ends_[i].data();
#pragma GCC unroll 4
      for (size_t lane = 0; lane < kLanes; lane += kWidth) {
        Vector start, other;
        std::memcpy(&start, input + lane, sizeof start);
        start = start + step.latency;
        if (kUsesSlots) {
          std::memcpy(&other, slot + lane, sizeof other);
          other = other + p.flight_;
          start = start > other ? start : other;
        }
        std::memcpy(&other, before + lane, sizeof other);
        start = start > other ? start : other;
        std::memcpy(&other, duration + lane, sizeof other);
        start = start + other;
        std::memcpy(result + lane, &start, sizeof start);
      }
    }
  }

  template <size_t kWidth>
  TRIREME_INLINE static void playAll(TailPlayer& p, size_t begin, size_t end) {
    if (p.usesSlots_)
      playSteps<kWidth, true>(p, begin, end);
    else
      playSteps<kWidth, false>(p, begin, end);
  }

  template <size_t kWidth>
  TRIREME_INLINE static void addAll(const Lanes* durations, const double* left, size_t count,
                                    Lanes& end) {
    typedef double Vector __attribute__((vector_size(kWidth * sizeof(double))));
#pragma GCC unroll 4
    for (size_t lane = 0; lane < kLanes; lane += kWidth) {
      Vector sum, duration;
      std::memcpy(&sum, &end[lane], sizeof sum);
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(&duration, &durations[i][lane], sizeof duration);
        sum += duration * left[i];
      }
      std::memcpy(&end[lane], &sum, sizeof sum);
    }
  }

  static void play2(TailPlayer& p, size_t begin, size_t end) { playAll<2>(p, begin, end); }
  static void addLeft2(const Lanes* durations, const double* left, size_t count, Lanes& end) {
    addAll<2>(durations, left, count, end);
  }
#ifdef __x86_64__
  __attribute__((target("avx2"))) static void play4(TailPlayer& p, size_t begin, size_t end) {
    playAll<4>(p, begin, end);
  }
  __attribute__((target("avx2"))) static void addLeft4(const Lanes* durations, const double* left,
                                                       size_t count, Lanes& end) {
    addAll<4>(durations, left, count, end);
  }
  __attribute__((target("avx512f"))) static void play8(TailPlayer& p, size_t begin, size_t end) {
    playAll<8>(p, begin, end);
  }
  __attribute__((target("avx512f"))) static void addLeft8(const Lanes* durations,
                                                          const double* left, size_t count,
                                                          Lanes& end) {
    addAll<8>(durations, left, count, end);
  }
#endif

  static const Engine& best() {
    static const Engine engine = [] {
#ifdef __x86_64__
      if (__builtin_cpu_supports("avx512f")) return Engine{play8, addLeft8};
      if (__builtin_cpu_supports("avx2")) return Engine{play4, addLeft4};
#endif
      return Engine{play2, addLeft2};
    }();
    return engine;
  }
};

// Puts the tasks into an order in which what they wait for comes before them.
class TailPlayer::Finder {
 public:
  Finder(const TailPlayer& player, const Pipeline& least, const schedule::Schedule& schedule,
         size_t first)
      : schedule_(schedule),
        first_(first),
        last_(player.numRanks_ - 1),
        chunks_(player.chunks_),
        flight_(player.flight_),
        forwardBefore_(chunks_),
        backwardBefore_(chunks_) {
    for (size_t stage = 0; stage < first; ++stage)
      for (size_t c = 0; c < chunks_; ++c) {
        const double transfer = player.stop_ + flight_;
        forwardBefore_[c] += least.stages[stage].forward[c].count() + transfer;
        backwardBefore_[c] += least.stages[stage].backward[c].count() + transfer;
      }
    for (size_t stage = first; stage < schedule.order.size(); ++stage)
      numSteps_ += schedule.order[stage].size();
    if (player.usesSlots_) leftBy_ = schedule::slotsLeftBy(schedule);
    places_.assign(
        (last_ + 1) * kDirections * chunks_ * static_cast<size_t>(schedule.numMicrobatches),
        kNotYet);
  }

  double atEnd() const { return backwardBefore_.front(); }

  // Goes round the ranks, a task on each: neighbours in the order seldom wait for each other, so
  // that the processor overlaps them.
  void find(std::vector<Step>& steps, std::vector<Look>& looks) {
    steps.reserve(numSteps_);
    Look look{0, std::vector<uint32_t>(last_ + 1, start()),
              std::vector<double>((last_ + 1) * kDirections * chunks_)};
    for (size_t rank = 0; rank <= last_; ++rank)
      for (const Task& task : schedule_.order[first_ + rank])
        ++look.left[passAt(rank, task.direction, task.chunk)];
    std::vector<std::vector<uint32_t>> ofRank(last_ + 1);  // steps, in the order of its tasks
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank <= last_; ++rank) {
        const std::vector<Task>& order = schedule_.order[first_ + rank];
        const size_t next = ofRank[rank].size();
        if (next == order.size()) continue;
        const Task& task = order[next];
        const auto [input, latency, isSent] = inputOf(rank, task);
        if (input == kNotYet) continue;
        const int32_t before = isSent && !leftBy_.empty() ? leftBy_[first_ + rank][next] : -1;
        const auto place = static_cast<uint32_t>(steps.size());
        const size_t pass = passAt(rank, task.direction, task.chunk);
        steps.push_back({static_cast<uint32_t>(pass), look.last[rank], input,
                         before < 0 ? never() : ofRank[rank][static_cast<size_t>(before)],
                         latency});
        placeAt(rank, task.direction, task.chunk, task.microbatch) = place;
        ofRank[rank].push_back(place);
        look.last[rank] = place;
        --look.left[pass];
        moved = true;
      }
      look.step = steps.size();
      if (look.step == numSteps_ || look.step >= lookAfter(looks)) looks.push_back(look);
    }
    TRIREME_CHECK(steps.size() == numSteps_);
  }

 private:
  struct Input {
    uint32_t step;
    double latency;
    bool isSent;  // from another rank
  };

  size_t lookAfter(const std::vector<Look>& looks) const {
    return (looks.empty() ? 0 : looks.back().step) + kTasksToLook * (last_ + 1);
  }
  uint32_t start() const { return static_cast<uint32_t>(numSteps_); }
  uint32_t never() const { return start() + 1; }
  size_t passAt(size_t rank, Direction direction, int32_t chunk) const {
    return (rank * kDirections + side(direction)) * chunks_ + static_cast<size_t>(chunk);
  }
  uint32_t& placeAt(size_t rank, Direction direction, int32_t chunk, int32_t microbatch) {
    return places_[passAt(rank, direction, chunk) * static_cast<size_t>(schedule_.numMicrobatches) +
                   static_cast<size_t>(microbatch)];
  }

  // A backward at the turn follows its own forward. Into the first of these stages what comes from
  // the last one, and the other way round, goes through all stages before.
  Input inputOf(size_t rank, const Task& task) {
    const auto [direction, chunk, microbatch] = task;
    const auto c = static_cast<size_t>(chunk);
    if (direction == Direction::kForward) {
      if (rank > 0) return {placeAt(rank - 1, direction, chunk, microbatch), flight_, true};
      if (c == 0) return {start(), forwardBefore_[0], first_ > 0};
      return {placeAt(last_, direction, chunk - 1, microbatch), forwardBefore_[c] + flight_, true};
    }
    if (direction == Direction::kWeights) return {start(), 0, false};  // after B on its rank
    if (rank < last_) return {placeAt(rank + 1, direction, chunk, microbatch), flight_, true};
    if (c + 1 == chunks_) return {placeAt(last_, Direction::kForward, chunk, microbatch), 0, false};
    return {placeAt(0, direction, chunk + 1, microbatch), backwardBefore_[c + 1] + flight_, true};
  }

  const schedule::Schedule& schedule_;
  const size_t first_, last_, chunks_;  // `last_` counted from the first one on
  const double flight_;
  std::vector<double> forwardBefore_, backwardBefore_;  // by chunk, through the stages before
  std::vector<std::vector<int32_t>> leftBy_;
  std::vector<uint32_t> places_;  // steps, by rank, direction, chunk, microbatch
  size_t numSteps_ = 0;
};

TailPlayer::TailPlayer(const Pipeline& least, const schedule::Schedule& schedule, size_t first)
    : numRanks_(schedule.order.size() - first),
      chunks_(static_cast<size_t>(schedule.virtualStages)),
      flight_(least.overlapTransfers ? least.hop.count() : 0),
      stop_(least.overlapTransfers ? 0 : least.hop.count()),
      usesSlots_(least.receivesIntoSlots && flight_ > 0),
      splits_(schedule.splitsBackward),
      durations_(numRanks_ * kDirections * chunks_) {
  Finder finder(*this, least, schedule, first);
  finder.find(steps_, looks_);
  if (!splits_) atEnd_ = finder.atEnd();
  ends_.resize(steps_.size());
  ends_.push_back(filled(0));
  ends_.push_back(filled(-std::numeric_limits<double>::infinity()));
}

void TailPlayer::putTimes(size_t rank, size_t lane, const StageTimes& times) {
  Lanes* const durations = &durations_[rank * kDirections * chunks_];
  for (size_t c = 0; c < chunks_; ++c) {
    durations[c][lane] = times.forward[c].count() + stop_;
    durations[chunks_ + c][lane] = times.backward[c].count() + stop_;
    if (splits_) durations[2 * chunks_ + c][lane] = times.weights[c].count();
  }
}

void TailPlayer::setBehind(Behind behind) {
  for (size_t lane = 0; lane < kLanes; ++lane)
    for (size_t rank = 1; rank < numRanks_; ++rank) putTimes(rank, lane, *behind[rank - 1]);
}

TailPlayer::Lanes TailPlayer::play(const Stages& own, Seconds limit) {
  for (size_t lane = 0; lane < kLanes; ++lane)
    putTimes(0, lane, *(own[lane] != nullptr ? own[lane] : own[0]));
  const Engine& engine = Engine::best();
  Lanes times{};
  size_t played = 0;
  for (const Look& look : looks_) {
    engine.play(*this, played, look.step);
    played = look.step;
    times = known(look, engine);
    if (Seconds(*std::min_element(times.begin(), times.end())) > limit) break;
  }
  numPlayed_ += static_cast<int64_t>(played);
  return times;
}

// Ranks have what is left to do. Then the last gradient goes on through the first chunks of those
// before, unless gradients of weights come last.
TailPlayer::Lanes TailPlayer::known(const Look& look, const Engine& engine) const {
  const size_t ofRank = kDirections * chunks_, passes = (splits_ ? 3 : 2) * chunks_;
  Lanes times{}, after = filled(atEnd_);
  for (size_t rank = 0; rank < numRanks_; ++rank) {
    Lanes end = ends_[look.last[rank]];
    const Lanes* const durations = &durations_[rank * ofRank];
    engine.addLeft(durations, &look.left[rank * ofRank], passes, end);
    const Lanes& backward = durations[chunks_];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      times[lane] = std::max(times[lane], end[lane] + after[lane]);
      if (!splits_) after[lane] += backward[lane] + flight_;
    }
  }
  return times;
}

}  // namespace trireme::cost
