#include "tests/equivalence/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/base/status.h"
#include "tests/equivalence/harness.h"

namespace trireme::equivalence {
namespace {

bool legal(const Choices& c) {
  const spec::ModelSpec model = tinyGpt(layersFor(c));
  return plan::verifyPlan(planFor(c, model, tinyTraining(spec::Precision::kFp32)), model).ok();
}

std::vector<Choices> allLegal() {
  std::vector<Choices> all;
  for (int64_t tp : {1, 2, 4})
    for (int64_t pp : {1, 2, 4})
      for (int64_t dp : {1, 2})
        for (int64_t v : {1, 2, 4})
          for (auto schedule : {plan::ScheduleKind::kGpipe, plan::ScheduleKind::k1F1B,
                                plan::ScheduleKind::kInterleaved, plan::ScheduleKind::kZeroBubbleH1,
                                plan::ScheduleKind::kZeroBubbleH2})
            for (auto recompute :
                 {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull})
              for (int bits = 0; bits < (pp > 1 && dp > 1 ? 128 : 64); ++bits) {
                const Choices c{
                    tp,
                    pp,
                    dp,
                    v,
                    schedule,
                    recompute,
                    (bits & 1) != 0,
                    (bits & 2) != 0,
                    (bits & 4) != 0,
                    (bits & 8) != 0,
                    (bits & 16) != 0 ? 2 : 1,
                    (bits & 32) != 0,
                    (bits & 64) != 0 ? plan::RankOrder::kTpCpPpDp : plan::RankOrder::kTpCpDpPp};
                if (legal(c)) all.push_back(c);
              }
  return all;
}

constexpr size_t kNumChoices = 13, kMaxValue = 8;
constexpr size_t kNumPairs = kNumChoices * kNumChoices * kMaxValue * kMaxValue;

using Pairs = std::array<uint16_t, kNumChoices*(kNumChoices - 1) / 2>;

// The pairs of two choices and their values, as numbers below kNumPairs.
Pairs pairsOf(const Choices& c) {
  const std::array<int64_t, kNumChoices> values = {c.tp,
                                                   c.pp,
                                                   c.dp,
                                                   c.virtualStages,
                                                   static_cast<int64_t>(c.schedule),
                                                   static_cast<int64_t>(c.recompute),
                                                   c.sequenceParallel,
                                                   c.shardOptimizer,
                                                   c.scatterGather,
                                                   c.uneven,
                                                   c.microbatchSize,
                                                   c.overlapReductions,
                                                   static_cast<int64_t>(c.rankOrder)};
  for (const int64_t value : values) TRIREME_CHECK(value < int64_t{kMaxValue});
  Pairs pairs;
  size_t next = 0;
  for (size_t i = 0; i < kNumChoices; ++i)
    for (size_t j = i + 1; j < kNumChoices; ++j)
      pairs[next++] = static_cast<uint16_t>(
          ((i * kNumChoices + j) * kMaxValue + static_cast<size_t>(values[i])) * kMaxValue +
          static_cast<size_t>(values[j]));
  return pairs;
}

// Takes whoever has most pairs that nobody has yet, until all are there; then fills up with a fixed
// stride through all of them.
std::vector<Choices> cover(const std::vector<Choices>& all) {
  std::vector<Pairs> pairs;
  std::array<bool, kNumPairs> open{};
  for (const Choices& c : all)
    for (const uint16_t pair : pairs.emplace_back(pairsOf(c))) open[pair] = true;
  std::vector<Choices> chosen;
  while (true) {
    size_t best = 0, bestCount = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto count = static_cast<size_t>(
          std::count_if(pairs[i].begin(), pairs[i].end(), [&](uint16_t p) { return open[p]; }));
      if (count > bestCount) best = i, bestCount = count;
    }
    if (bestCount == 0) break;
    for (const uint16_t pair : pairs[best]) open[pair] = false;
    chosen.push_back(all[best]);
  }
  for (size_t i = 0; chosen.size() < 64; ++i) chosen.push_back(all[(i * 977 + 31) % all.size()]);
  return chosen;
}

}  // namespace

int64_t layersFor(const Choices& c) {
  const int64_t chunks = c.pp * c.virtualStages;
  return chunks > 8 || (chunks == 8 && c.uneven) ? 16 : 8;
}

plan::Plan planFor(const Choices& c, const spec::ModelSpec& model,
                   const spec::TrainingSpec& training) {
  plan::Plan p = serialPlan(model, training, c.microbatchSize);
  p.tp = c.tp;
  p.pp = c.pp;
  p.virtualStages = c.virtualStages;
  p.schedule = c.schedule;
  p.recompute = c.recompute;
  p.sequenceParallel = c.sequenceParallel;
  p.scatterGather = c.scatterGather;
  p.overlapReductions = c.overlapReductions;
  p.rankOrder = c.rankOrder;
  if (c.shardOptimizer) {
    p.dpShard = c.dp;
    p.stateSharding = plan::StateSharding::kOptimizer;
  } else {
    p.dpReplicate = c.dp;
  }
  p.layers = plan::evenLayers(model.numLayers, c.pp, c.virtualStages);
  if (c.uneven) {
    // The last virtual stage gives its layers but one to the first.
    plan::LayerRange& last = p.layers.back().back();
    const int64_t moved = last.count - 1;
    int64_t first = 0;
    for (int64_t vs = 0; vs < c.pp * c.virtualStages; ++vs) {
      plan::LayerRange& range =
          p.layers[static_cast<size_t>(vs % c.pp)][static_cast<size_t>(vs / c.pp)];
      if (vs == 0) range.count += moved;
      if (&range == &last) range.count -= moved;
      range.first = first;
      first += range.count;
    }
    if (moved == 0 || c.pp * c.virtualStages == 1) p.layers.clear();  // not legal: nothing to move
  }
  return p;
}

std::string describe(const Choices& c) {
  return fmt::format("tp{} pp{} dp{} v{} {} recompute {}{}{}{}{}{}{} microbatch {}", c.tp, c.pp,
                     c.dp, c.virtualStages, plan::scheduleName(c.schedule),
                     plan::recomputeName(c.recompute), c.sequenceParallel ? " sp" : "",
                     c.shardOptimizer ? " zero1" : "", c.scatterGather ? " sg" : "",
                     c.uneven ? " uneven" : "", c.overlapReductions ? " overlap" : "",
                     c.rankOrder == plan::RankOrder::kTpCpPpDp ? " pp inside dp" : "",
                     c.microbatchSize);
}

const std::vector<Choices>& coveringChoices() {
  static const std::vector<Choices> chosen = cover(allLegal());
  return chosen;
}

}  // namespace trireme::equivalence
