#include "cost_models/tail_player.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

// Into functions for other processors, which a call would leave.
#define TRIREME_INLINE __attribute__((always_inline)) inline

namespace trireme::cost {
namespace {

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

  template <size_t kWidth, bool kUsesSlots, bool kInRows>
  TRIREME_INLINE static void playSteps(TailPlayer& p, size_t begin, size_t end) {
    typedef double Vector __attribute__((vector_size(kWidth * sizeof(double))));
    // Which the stores below could change otherwise, for all that a compiler knows.
    const TaskOrder::Step* const steps = p.order_->steps.data();
    const Lanes* const durations = p.durations_.data();
    const double* const latencies = p.latencies_.data();
    Lanes* const ends = p.ends_.data();
    const double* const flights = p.flights_.data();
    const uint32_t* const sentAfter = p.order_->sentAfter.data();
    Lanes* const arrivals = p.arrivals_.data();
    for (size_t i = begin; i < end; ++i) {
      const TaskOrder::Step& step = steps[i];
      const double* const input = ends[step.input].data();
      const double* const slot = ends[step.slot].data();
      const double* const before = ends[step.before].data();
      const double* const duration = durations[step.pass].data();
      double* const result = ends[i].data();
#pragma GCC unroll 4
      for (size_t lane = 0; lane < kLanes; lane += kWidth) {
        Vector start, other;
        std::memcpy(&start, input + lane, sizeof start);
        start = start + latencies[step.way];
        if (kUsesSlots) {
          std::memcpy(&other, slot + lane, sizeof other);
          other = other + flights[step.way];
          start = start > other ? start : other;
        }
        if (kInRows) {
          std::memcpy(&other, arrivals[sentAfter[i]].data() + lane, sizeof other);
          other = other + flights[step.way];
          start = start > other ? start : other;
          std::memcpy(arrivals[i].data() + lane, &start, sizeof start);
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
    if (!p.usesSlots_)
      playSteps<kWidth, false, false>(p, begin, end);
    else if (p.inRows_)
      playSteps<kWidth, true, true>(p, begin, end);
    else
      playSteps<kWidth, true, false>(p, begin, end);
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

TailPlayer::TailPlayer(std::shared_ptr<const TaskOrder> order, const Pipeline& least, size_t first)
    : order_(std::move(order)),
      first_(first),
      stop_(least.stop().count()),
      usesSlots_(least.receivesIntoSlots && least.overlapTransfers && least.hops.size() > 1),
      flights_(order_->numWays()),
      durations_(order_->numPasses()),
      ends_(order_->numEnds()),
      arrivals_(usesSlots_ ? order_->numEnds() : 0) {
  const size_t chunks = order_->chunks;
  const Hops hops(least);
  const auto behind = [&](size_t stage) { return hops.behind(stage).count(); };
  for (size_t rank = 0; rank < order_->numRanks; ++rank)
    flights_[order_->hopBehind(rank)] = behind(first + rank);
  longestFlight_ = *std::max_element(flights_.begin(), flights_.end());
  latencies_ = flights_;
  std::vector<double> forward(chunks), backward(chunks);  // through the stages before
  for (size_t stage = 0; stage < first; ++stage)
    for (size_t c = 0; c < chunks; ++c) {
      forward[c] += least.stages[stage].forward[c].count() + stop_ + behind(stage);
      backward[c] += least.stages[stage].backward[c].count() + stop_ + behind(stage);
    }
  const double around = behind(first + order_->numRanks - 1);
  for (size_t c = 0; c < chunks && first > 0; ++c) {
    const uint32_t through = order_->throughForward(c), back = order_->throughBackward(c);
    flights_[through] = behind(first - 1);
    flights_[back] = around;
    latencies_[through] = forward[c] + (c > 0 ? around : 0);  // or the first
    latencies_[back] = backward[c] + around;
  }
  if (!order_->splitsBackward) atEnd_ = backward[0];
  ends_[order_->start()] = filled(0);
  ends_[order_->never()] = filled(-std::numeric_limits<double>::infinity());
  if (usesSlots_) arrivals_[order_->never()] = ends_[order_->never()];
}

void TailPlayer::put(size_t stage, size_t lane, const StageTimes& times) {
  const size_t chunks = order_->chunks;
  Lanes* const durations = &durations_[(stage - first_) * TaskOrder::kDirections * chunks];
  double shortest = times.forward[0].count();
  for (size_t c = 0; c < chunks; ++c) {
    const double forward = times.forward[c].count(), backward = times.backward[c].count();
    durations[c][lane] = forward + stop_;
    durations[chunks + c][lane] = backward + stop_;
    shortest = std::min(shortest, std::min(forward, backward));
  }
  for (size_t c = 0; c < times.weights.size(); ++c) {
    durations[2 * chunks + c][lane] = times.weights[c].count();
    shortest = std::min(shortest, times.weights[c].count());
  }
  // Messages on one link are made, and slots are left, a pass apart.
  inRows_ = inRows_ || (usesSlots_ && shortest < longestFlight_);
}

void TailPlayer::put(size_t stage, const StageTimes& times) {
  for (size_t lane = 0; lane < kLanes; ++lane) put(stage, lane, times);
}

TailPlayer::Lanes TailPlayer::play(size_t numLanes, Seconds limit) {
  const Engine& engine = Engine::best();
  Lanes times{};
  size_t played = 0;
  for (const TaskOrder::Look& look : order_->looks) {
    engine.play(*this, played, look.step);
    played = look.step;
    times = known(look, engine);
    if (Seconds(*std::min_element(times.begin(), times.begin() + numLanes)) > limit) break;
  }
  numPlayed_ += static_cast<int64_t>(played);
  return times;
}

// Ranks have what is left to do. Then the last gradient goes on through the first chunks of those
// before, unless gradients of weights come last.
TailPlayer::Lanes TailPlayer::known(const TaskOrder::Look& look, const Engine& engine) const {
  const size_t chunks = order_->chunks, ofRank = TaskOrder::kDirections * chunks;
  const size_t passes = (order_->splitsBackward ? 3 : 2) * chunks;
  const bool isWhole = first_ == 0 && look.step == order_->steps.size();  // then it has
  Lanes times{}, after = filled(atEnd_);
  for (size_t rank = 0; rank < order_->numRanks; ++rank) {
    Lanes end = ends_[look.last[rank]];
    const Lanes* const durations = &durations_[rank * ofRank];
    if (!isWhole) engine.addLeft(durations, &look.left[rank * ofRank], passes, end);
    const Lanes& backward = durations[chunks];
    const double behind = flights_[order_->hopBehind(rank)];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      times[lane] = std::max(times[lane], end[lane] + after[lane]);
      if (!order_->splitsBackward && !isWhole) after[lane] += backward[lane] + behind;
    }
  }
  return times;
}

}  // namespace trireme::cost
