#include "cost_models/in_flight.h"

#include <algorithm>

#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"

namespace trireme::cost {
namespace {

// Sums that differ by no more are the same but for rounding.
constexpr double kSame = 1e-12;

// The first k tasks of one direction.
class FirstTasks {
 public:
  FirstTasks(int64_t k, int64_t p, int64_t v)
      : p_(p), whole_(k / (p * v) * p), rest_(k % (p * v)) {}
  // Of the chunk that is `position`-th in their order.
  int64_t countOf(int64_t position) const {
    return whole_ + std::clamp<int64_t>(rest_ - position * p_, 0, p_);
  }
  // Of all, where one of the first n chunks in their order each are sums[n] together.
  double sumOf(const std::vector<double>& sums) const {
    const auto at = static_cast<size_t>(rest_ / p_);
    return asDouble(whole_) * sums.back() + asDouble(p_) * sums[at] +
           asDouble(rest_ % p_) * (sums[at + 1] - sums[at]);
  }

 private:
  int64_t p_, whole_, rest_;
};

int64_t warmUpOf(int64_t p, int64_t v, int64_t m, int64_t rank) {
  return m == p ? m * v : std::min(2 * (p - rank - 1) + (v - 1) * p, m * v);
}

// Of the first n, for every n.
std::vector<double> partialSums(auto begin, auto end) {
  std::vector<double> sums = {0};
  for (; begin != end; ++begin) sums.push_back(sums.back() + *begin);
  return sums;
}

std::vector<int64_t> interleavedSlots(int64_t p, int64_t v, int64_t m, int64_t rank) {
  const auto chunks = static_cast<size_t>(v);
  const int64_t warmUp = warmUpOf(p, v, m, rank);
  if (warmUp == m * v) return std::vector<int64_t>(chunks, m);
  // Between the places where a run of the chunk's forwards ends and one of its backwards begins,
  // the difference only falls and then rises again: its peaks are there or at the ends.
  const int64_t period = p * v, steady = std::min(m * v - warmUp, period);
  std::vector<int64_t> peak(chunks, 0);
  for (int64_t c = 0; c < v; ++c) {
    const int64_t forwardsEnd = (((c + 1) * p - warmUp - 1) % period + period) % period;
    for (const int64_t i : {int64_t{0}, forwardsEnd, (v - 1 - c) * p, steady - 1}) {
      if (i >= steady) continue;
      int64_t& most = peak[static_cast<size_t>(c)];
      most = std::max(most, FirstTasks(warmUp + i + 1, p, v).countOf(c) -
                                FirstTasks(i, p, v).countOf(v - 1 - c));
    }
  }
  return peak;
}

}  // namespace

std::vector<int64_t> peakSlots(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                               int64_t numMicrobatches, int64_t rank) {
  switch (kind) {
    case plan::ScheduleKind::kGpipe:
      return {numMicrobatches};
    case plan::ScheduleKind::k1F1B:
      return {std::min(numMicrobatches, stages - rank)};
    case plan::ScheduleKind::kInterleaved:
      return interleavedSlots(stages, virtualStages, numMicrobatches, rank);
    case plan::ScheduleKind::kZeroBubbleH1:
      return {std::min(numMicrobatches, stages)};
    case plan::ScheduleKind::kZeroBubbleH2:
      return {std::min(numMicrobatches, 2 * stages - 1)};
  }
  return {};
}

// Forwards change their chunk where w + i + 1 is a multiple of p, backwards where i is; in between
// the sum changes by the same amount at every i, so its largest value is there or at the end.
std::vector<int64_t> aliveAtPeak(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                                 int64_t numMicrobatches, int64_t rank,
                                 const std::vector<double>& weights) {
  const int64_t p = stages, v = virtualStages, m = numMicrobatches;
  const bool isInterleaved = kind == plan::ScheduleKind::kInterleaved;
  const int64_t warmUp = isInterleaved ? warmUpOf(p, v, m, rank) : 0;
  if (!isInterleaved || warmUp == m * v) return peakSlots(kind, p, v, m, rank);
  const int64_t steady = std::min(m * v - warmUp, p * v), turn = (2 * p - 1 - warmUp % p) % p;
  const std::vector<double> ofFirst = partialSums(weights.begin(), weights.end());
  const std::vector<double> ofLast = partialSums(weights.rbegin(), weights.rend());
  double most = -1;
  int64_t peak = 0;
  const auto lookAt = [&](int64_t i) {
    const double sum =
        FirstTasks(warmUp + i + 1, p, v).sumOf(ofFirst) - FirstTasks(i, p, v).sumOf(ofLast);
    if (sum <= most * (1 + kSame)) return;
    most = sum;
    peak = i;
  };
  for (int64_t i = 0; i < steady; i += p) {
    lookAt(i);
    if (i + turn < steady) lookAt(i + turn);
  }
  lookAt(steady - 1);
  const FirstTasks forwards(warmUp + peak + 1, p, v), backwards(peak, p, v);
  std::vector<int64_t> alive;
  for (int64_t c = 0; c < v; ++c)
    alive.push_back(forwards.countOf(c) - backwards.countOf(v - 1 - c));
  return alive;
}

double peakTogether(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                    int64_t numMicrobatches, int64_t rank, const std::vector<double>& weights) {
  const std::vector<int64_t> alive =
      aliveAtPeak(kind, stages, virtualStages, numMicrobatches, rank, weights);
  double sum = 0;
  for (size_t c = 0; c < alive.size(); ++c) sum += static_cast<double>(alive[c]) * weights[c];
  return sum;
}

double peakOfSplit(plan::ScheduleKind kind, int64_t stages, int64_t numMicrobatches, int64_t rank,
                   double kept, double forWeights) {
  const schedule::Lead lead = schedule::leadOf(kind, stages, rank);
  const int64_t m = numMicrobatches, alive = std::min(m, lead.forwards + lead.backwards);
  const int64_t waiting =
      forWeights < kept ? alive - std::min(m, lead.forwards) : std::min(m, lead.backwards + 1);
  return static_cast<double>(alive - waiting) * kept + static_cast<double>(waiting) * forWeights;
}

int64_t peakOfLast(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                   int64_t numMicrobatches, int64_t rank, int64_t chunks) {
  const int64_t p = stages, v = virtualStages, m = numMicrobatches, n = chunks;
  if (n == 0) return 0;
  if (kind != plan::ScheduleKind::kInterleaved) return peakSlots(kind, p, v, m, rank).front();
  const int64_t warmUp = warmUpOf(p, v, m, rank), period = p * v;
  if (warmUp == m * v) return m * n;
  const auto aliveAt = [&](int64_t i) {
    const int64_t k = warmUp + i + 1;
    const int64_t forwards =
        k / period * n * p + std::clamp<int64_t>(k % period - (v - n) * p, 0, n * p);
    return forwards - std::min(i, n * p);
  };
  return std::max(aliveAt(0), aliveAt(std::min(m * v - warmUp, period) - 1));
}

}  // namespace trireme::cost
