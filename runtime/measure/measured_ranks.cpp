#include "runtime/measure/measured_ranks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "runtime/measure/median.h"

namespace trireme::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct RankState {
  MeasuredRanks::Work work;
  Status status;
  double once = 0;  // a warm call
  double perCall = 0;
};

// After the first failure of a rank its other calls are left out.
void call(RankState& state) {
  if (state.status.ok()) state.status = state.work();
}

void prepareRank(RankState& state, const MeasuredRanks::Prepare& prepare, int32_t rank) {
  Result<MeasuredRanks::Work> work = prepare(rank);
  if (!work.has_value()) {
    state.status = work.error();
    return;
  }
  state.work = *std::move(work);
}

void warmUp(RankState& state) {
  call(state);
  const Clock::time_point start = Clock::now();
  call(state);
  state.once = std::max(secondsSince(start), 1e-9);
}

Status firstFailure(const std::vector<RankState>& ranks) {
  for (const RankState& rank : ranks)
    if (!rank.status.ok()) return rank.status;
  return {};
}

// On the first ranks, as many as there are states.
void runOn(std::vector<RankState>& ranks, RankThreads& threads,
           const std::function<void(RankState& state, int32_t rank)>& job) {
  threads.run([&](int32_t rank) {
    if (rank < std::ssize(ranks)) job(ranks[static_cast<size_t>(rank)], rank);
  });
}

// The first ranks with their work, called twice.
Result<std::vector<RankState>> warmRanks(RankThreads& threads, int32_t numRanks,
                                         const MeasuredRanks::Prepare& prepare) {
  std::vector<RankState> ranks(static_cast<size_t>(numRanks));
  runOn(ranks, threads, [&](RankState& state, int32_t rank) { prepareRank(state, prepare, rank); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  runOn(ranks, threads, [](RankState& state, int32_t) { warmUp(state); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  return ranks;
}

// Batches of at least 20 us, beside which reading the clock is nothing.
void timeRank(RankState& state, double window) {
  constexpr double kBatch = 20e-6;
  const auto calls = static_cast<int64_t>(std::ceil(std::clamp(kBatch / state.once, 1.0, 1e4)));
  std::vector<double> batches;
  const Clock::time_point start = Clock::now();
  while (state.status.ok() && (batches.size() < 3 || secondsSince(start) < window)) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call(state);
    batches.push_back(secondsSince(begin) / static_cast<double>(calls));
  }
  if (!batches.empty()) state.perCall = median(batches);
}

}  // namespace

int32_t coresOfThisMachine() {
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

Result<Seconds> MeasuredRanks::independent(const Prepare& prepare) {
  TRIREME_ASSIGN_OR_RETURN(std::vector<RankState> ranks, warmRanks(threads_, atOnce_, prepare));
  runOn(ranks, threads_, [&](RankState& state, int32_t) { timeRank(state, window_.count()); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  double sum = 0;
  for (const RankState& rank : ranks) sum += rank.perCall;
  return Seconds(sum / atOnce_ * turns());
}

Result<Seconds> MeasuredRanks::together(const Prepare& prepare) {
  constexpr int kRounds = 5;
  TRIREME_ASSIGN_OR_RETURN(std::vector<RankState> ranks, warmRanks(threads_, numRanks_, prepare));
  const double perRound = window_.count() * turns() / kRounds;
  const auto calls = static_cast<int64_t>(std::clamp(perRound / ranks.front().once, 3.0, 1e5));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    runOn(ranks, threads_, [&](RankState& state, int32_t) {
      call(state);  // All are awake when it ends.
      const Clock::time_point start = Clock::now();
      for (int64_t i = 0; i < calls; ++i) call(state);
      state.perCall = secondsSince(start) / static_cast<double>(calls);
    });
    TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
    rounds.push_back(ranks.front().perCall);
  }
  return Seconds(median(rounds));
}

}  // namespace trireme::runtime
