#include "tests/equivalence/plans.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <tuple>

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

using Pair = std::tuple<int, int64_t, int, int64_t>;

std::vector<Pair> pairsOf(const Choices& c) {
  const std::array<int64_t, 13> values = {c.tp,
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
  std::vector<Pair> pairs;
  for (int i = 0; i < 13; ++i)
    for (int j = i + 1; j < 13; ++j)
      pairs.emplace_back(i, values[static_cast<size_t>(i)], j, values[static_cast<size_t>(j)]);
  return pairs;
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

std::vector<Choices> coveringChoices() {
  const std::vector<Choices> all = allLegal();
  std::set<Pair> open;
  for (const Choices& c : all)
    for (const Pair& pair : pairsOf(c)) open.insert(pair);
  std::vector<Choices> chosen;
  while (!open.empty()) {
    const Choices* best = nullptr;
    size_t bestCount = 0;
    for (const Choices& c : all) {
      size_t count = 0;
      for (const Pair& pair : pairsOf(c)) count += open.count(pair);
      if (count > bestCount) best = &c, bestCount = count;
    }
    for (const Pair& pair : pairsOf(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  // Fill up with a fixed stride through all of them.
  for (size_t i = 0; chosen.size() < 64; ++i) chosen.push_back(all[(i * 977 + 31) % all.size()]);
  return chosen;
}

}  // namespace trireme::equivalence
