#include "planner/cuts/cut_player.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/cuts/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

// Chunks that a layer is moved from and to at first; twice as many where that does not help.
constexpr size_t kFirstEnds = 3;

bool isFaster(Seconds a, Seconds b) { return a < b * (1 - kTie); }

}  // namespace

Counts countsOf(const Ranges& ranges) {
  Counts counts;
  for (const auto& stage : ranges) {
    counts.emplace_back();
    for (const plan::LayerRange& range : stage) counts.back().push_back(range.count);
  }
  return counts;
}

CutPlayer::CutPlayer(StageCosts& costs, cost::FlushPlayer& flush, cost::Pipeline pipeline,
                     PassTimes weight, double factor, std::optional<Seconds> limit,
                     int64_t mostPasses)
    : costs_(costs),
      pipeline_(std::move(pipeline)),
      flush_(flush),
      weight_(weight),
      factor_(factor),
      limit_(limit ? *limit * (1 + kTie) : Seconds(std::numeric_limits<double>::infinity())),
      mostPasses_(mostPasses) {}

const CutPlayer::Stage& CutPlayer::stageOf(size_t rank, const std::vector<int64_t>& counts) {
  if (rank >= latest_.size()) latest_.resize(rank + 1);
  if (latest_[rank] != nullptr && latest_[rank]->first == counts) return latest_[rank]->second;
  const size_t kind = costs_.kindOf(rank);
  if (kind >= known_.size()) known_.resize(kind + 1);
  const auto [place, isNew] = known_[kind].try_emplace(counts);
  latest_[rank] = &*place;
  Stage& stage = place->second;
  if (!isNew) return stage;
  StageCosts::Stage cost = costs_.stageOf(rank, counts);
  const Seconds stop = pipeline_.stop();
  const auto pass = [&](size_t c) {
    return (cost.times.forward[c] + cost.times.backward[c] + stop * 2).count();
  };
  for (size_t c = 0; c < counts.size(); ++c) stage.all += pass(c);
  stage.first = pass(0);
  stage.last = pass(counts.size() - 1);
  if (!cost.times.weights.empty()) {
    stage.all += cost.times.weights.front().count();
    stage.first = pipeline_.postValidation ? 0 : (cost.times.forward.front() + stop).count();
    stage.last = 0;
  }
  stage.once = cost.once;
  stage.times = std::move(cost.times);
  return stage;
}

bool CutPlayer::fits(size_t rank, const std::vector<int64_t>& counts) {
  if (rank >= fitting_.size()) fitting_.resize(rank + 1);
  Fitting& fitting = fitting_[rank];
  if (fitting.latest != nullptr && fitting.latest->first == counts) return fitting.latest->second;
  const auto [place, isNew] = fitting.known.try_emplace(counts);
  if (isNew) place->second = costs_.fits(rank, counts);
  fitting.latest = &*place;
  return place->second;
}

bool CutPlayer::fits(const Counts& counts) {
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (!fits(rank, counts[rank])) return false;
  return true;
}

cost::OnceTimes CutPlayer::put(const Counts& counts) {
  cost::OnceTimes once;
  pipeline_.stages.resize(counts.size());
  put_.resize(counts.size(), nullptr);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const Stage& stage = stageOf(rank, counts[rank]);
    if (std::exchange(put_[rank], &stage) != &stage) pipeline_.stages[rank] = stage.times;
    once = longest(once, stage.once);
  }
  return once;
}

Seconds CutPlayer::timeOf(const Counts& counts) {
  const auto [place, isNew] = played_.try_emplace(counts);
  if (!isNew) return place->second;
  const Seconds once = put(counts).total();
  const auto chunks = static_cast<int64_t>(counts.size() * counts.front().size());
  numPasses_ += 2 * pipeline_.numMicrobatches * chunks;
  return place->second = (flush_.timeOf(pipeline_) + once) * factor_;
}

bool CutPlayer::play(const Counts& counts) {
  if (!fits(counts)) return false;
  const Seconds once = put(counts).total();
  const auto isSlow = [&](Seconds step) {
    return step > limit_ || (best_ && !isFaster(step, best_->step));
  };
  if (isSlow((cost::pipelineTime(pipeline_) + once) * factor_)) return false;
  const Seconds step = timeOf(counts);
  if (isSlow(step)) return false;
  best_ = {rangesFrom(counts), step};
  counts_ = counts;
  return true;
}

void CutPlayer::descend(size_t mostEnds) {
  for (size_t ends = std::min(kFirstEnds, mostEnds); best_ && mayPlay();) {
    if (stepDown(ends)) {
      ends = std::min(kFirstEnds, mostEnds);
    } else if (ends < mostEnds) {
      ends = std::min(2 * ends, mostEnds);
    } else {
      return;
    }
  }
}

int64_t CutPlayer::leastOf(const Chunk& at, const Counts& counts) const {
  const bool isFirst = at.rank == 0 && at.chunk == 0;
  const bool isLast = at.rank + 1 == counts.size() && at.chunk + 1 == counts[at.rank].size();
  return costs_.takesEmptyEnds() && (isFirst || isLast) ? 0 : 1;
}

std::optional<Counts> CutPlayer::nearest(const std::vector<double>& layers, int64_t left,
                                         int64_t chunks) {
  const auto perStage = static_cast<size_t>(chunks);
  Counts counts(layers.size() / perStage, std::vector<int64_t>(perStage));
  std::vector<size_t> order(layers.size());  // of chunks that may have more
  std::iota(order.begin(), order.end(), size_t{0});
  const auto countAt = [&](size_t i) -> int64_t& { return counts[i / perStage][i % perStage]; };
  const auto missing = [&](size_t i) { return layers[i] - static_cast<double>(countAt(i)); };
  for (const size_t i : order) {
    countAt(i) = std::max(static_cast<int64_t>(std::floor(layers[i] + 1e-6)),
                          leastOf({i / perStage, i % perStage}, counts));
    left -= countAt(i);
  }
  for (; left > 0 && !order.empty(); --left) {
    const auto most = std::max_element(order.begin(), order.end(),
                                       [&](size_t a, size_t b) { return missing(a) < missing(b); });
    ++countAt(*most);
    if (fits(*most / perStage, counts[*most / perStage])) continue;
    --countAt(*most);
    ++left;
    order.erase(most);
  }
  if (left != 0) return std::nullopt;
  return counts;
}

// All chunks, those first that the critical path of the best cut passes most often.
std::vector<CutPlayer::Chunk> CutPlayer::byPasses() {
  put(counts_);
  std::vector<std::pair<double, Chunk>> passed;
  for (size_t rank = 0; rank < counts_.size(); ++rank)
    for (size_t c = 0; c < counts_[rank].size(); ++c) passed.push_back({0, {rank, c}});
  const size_t chunks = counts_.front().size();
  numPasses_ += 2 * pipeline_.numMicrobatches * static_cast<int64_t>(passed.size());
  for (const cost::PathItem& item : flush_.play(pipeline_, false).path)
    passed[static_cast<size_t>(item.stage) * chunks + static_cast<size_t>(item.chunk)].first +=
        (item.direction == program::Direction::kBackward ? weight_.backward : weight_.forward)
            .count();
  std::stable_sort(passed.begin(), passed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Chunk> order;
  for (const auto& [time, chunk] : passed) order.push_back(chunk);
  return order;
}

bool CutPlayer::stepDown(size_t mostEnds) {
  const std::vector<Chunk> order = byPasses();
  const Counts from = counts_;
  const auto once = [&](const Chunk& at) { return stageOf(at.rank, from[at.rank]).once.total(); };
  std::vector<Chunk> givers, takers;
  for (const Chunk& at : order)
    if (mayGive(at, from)) givers.push_back(at);
  if (givers.empty()) return false;
  // The stage with the longest `once` first, if that is not the same.
  const auto longest = std::max_element(givers.begin(), givers.end(),
                                        [&](auto& a, auto& b) { return once(a) < once(b); });
  std::rotate(givers.begin(), longest, longest + 1);
  givers.resize(std::min(givers.size(), mostEnds + 1));
  takers.assign(order.rbegin(), order.rend());
  const auto shortest = std::min_element(takers.begin(), takers.end(),
                                         [&](auto& a, auto& b) { return once(a) < once(b); });
  std::rotate(takers.begin(), shortest, shortest + 1);
  takers.resize(std::min(takers.size(), mostEnds + 1));
  bool helped = false;
  for (const Chunk& giver : givers)
    for (const Chunk& taker : takers) {
      if (!mayPlay()) return helped;
      if (taker.rank == giver.rank && taker.chunk == giver.chunk) continue;
      Counts moved = from;
      --moved[giver.rank][giver.chunk];
      ++moved[taker.rank][taker.chunk];
      helped = play(moved) || helped;
    }
  return helped;
}

}  // namespace trireme::planner
