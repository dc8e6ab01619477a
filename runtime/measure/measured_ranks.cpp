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

// Every rank with its work, called twice.
Result<std::vector<RankState>> warmRanks(RankThreads& threads, int32_t numRanks,
                                         const MeasuredRanks::Prepare& prepare) {
  std::vector<RankState> ranks(static_cast<size_t>(numRanks));
  const auto state = [&](int32_t rank) -> RankState& { return ranks[static_cast<size_t>(rank)]; };
  threads.run([&](int32_t rank) { prepareRank(state(rank), prepare, rank); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  threads.run([&](int32_t rank) { warmUp(state(rank)); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  return ranks;
}

// Batches of at least 20 us, beside which reading the clock is nothing.
void timeRank(RankState& state, double window, bool sharesCore) {
  constexpr double kBatch = 20e-6;
  const auto calls = static_cast<int64_t>(std::ceil(std::clamp(kBatch / state.once, 1.0, 1e4)));
  std::vector<double> batches;
  const Clock::time_point start = Clock::now();
  while (state.status.ok() && (batches.size() < 3 || secondsSince(start) < window)) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call(state);
    batches.push_back(secondsSince(begin) / static_cast<double>(calls));
  }
  const double total = secondsSince(start);
  if (batches.empty()) return;
  state.perCall =
      sharesCore ? total / static_cast<double>(calls * batches.size()) : median(batches);
}

}  // namespace

Result<Seconds> MeasuredRanks::independent(const Prepare& prepare) {
  TRIREME_ASSIGN_OR_RETURN(std::vector<RankState> ranks, warmRanks(threads_, numRanks_, prepare));
  const auto state = [&](int32_t rank) -> RankState& { return ranks[static_cast<size_t>(rank)]; };
  const bool sharesCore = numRanks_ > static_cast<int32_t>(std::thread::hardware_concurrency());
  threads_.run([&](int32_t rank) { timeRank(state(rank), window_.count(), sharesCore); });
  TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
  double sum = 0;
  for (const RankState& rank : ranks) sum += rank.perCall;
  return Seconds(sum / static_cast<double>(numRanks_));
}

Result<Seconds> MeasuredRanks::together(const Prepare& prepare) {
  constexpr int kRounds = 5;
  TRIREME_ASSIGN_OR_RETURN(std::vector<RankState> ranks, warmRanks(threads_, numRanks_, prepare));
  const auto state = [&](int32_t rank) -> RankState& { return ranks[static_cast<size_t>(rank)]; };
  const double perRound = window_.count() / kRounds;
  const auto calls = static_cast<int64_t>(std::clamp(perRound / ranks.front().once, 3.0, 1e5));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    threads_.run([&](int32_t rank) {
      call(state(rank));  // All are awake when it ends.
      const Clock::time_point start = Clock::now();
      for (int64_t i = 0; i < calls; ++i) call(state(rank));
      state(rank).perCall = secondsSince(start) / static_cast<double>(calls);
    });
    TRIREME_RETURN_IF_ERROR(firstFailure(ranks));
    rounds.push_back(ranks.front().perCall);
  }
  return Seconds(median(rounds));
}

}  // namespace trireme::runtime
