#include "planner/cuts/cut_stages.h"

#include <algorithm>

#include "cost_models/formulas.h"
#include "planner/cuts/cuts.h"

namespace trireme::planner {
namespace {

plan::Plan withoutLayers(const plan::Plan& plan) {
  plan::Plan bare = plan;
  bare.layers.assign(static_cast<size_t>(plan.pp), {});
  return bare;
}

}  // namespace

std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks) {
  std::vector<int64_t> counts(static_cast<size_t>(chunks), layers / chunks);
  for (int64_t c = chunks - layers % chunks; c < chunks; ++c) ++counts[static_cast<size_t>(c)];
  return counts;
}

std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks, int64_t rank) {
  std::vector<int64_t> counts = spreadOver(layers, chunks);
  const bool hasNone = layers < chunks;
  if (hasNone && rank > 0) std::reverse(counts.begin(), counts.end());
  return counts;
}

Ranges rangesOf(const std::vector<int64_t>& layers, int64_t chunks) {
  std::vector<std::vector<int64_t>> counts;
  for (size_t rank = 0; rank < layers.size(); ++rank)
    counts.push_back(spreadOver(layers[rank], chunks, static_cast<int64_t>(rank)));
  return rangesFrom(counts);
}

CutStages::CutStages(const Query& query, const plan::Plan& whole, const BlockCosts& blocks)
    : query(query),
      blocks(*blocks.described),
      plan(withoutLayers(whole)),
      setting(*blocks.described, query.model, plan, query.cluster, query.stack.description),
      numLayers(query.model.numLayers),
      count(whole.pp),
      chunks(whole.virtualStages),
      microbatches(cost::asDouble(whole.numMicrobatches())),
      transfer(
          cost::transferTime(query.model, plan, query.cluster, query.stack.description).count()),
      factor(cost::stepFactor(plan, query.cluster, query.stack.description)),
      isSplit(plan::splitsBackward(whole.schedule)),
      isAhead(isSplit && query.stack.description.postValidation) {
  for (const StageKind kind : kStageKinds)
    plan.layers[static_cast<size_t>(rankOf(kind))].resize(static_cast<size_t>(chunks));
}

StageKind CutStages::kindOf(int64_t rank) const {
  if (rank == 0) return kFirst;
  return rank + 1 == count ? kLast : kInner;
}

int64_t CutStages::rankOf(StageKind kind) const {
  return kind == kLast ? count - 1 : std::min<int64_t>(kind, count - 1);
}

int64_t CutStages::least(int64_t rank) const {
  return kindOf(rank) == kInner ? chunks : chunks - 1;
}

void CutStages::setLayers(int64_t rank, const std::vector<int64_t>& counts) {
  std::vector<plan::LayerRange>& ranges = plan.layers[static_cast<size_t>(rank)];
  ranges.resize(counts.size());
  for (size_t c = 0; c < counts.size(); ++c) ranges[c].count = counts[c];
}

cost::Pipeline CutStages::pipeline() const {
  cost::Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.numMicrobatches = plan.numMicrobatches();
  pipeline.overlapTransfers = false;
  pipeline.postValidation = isAhead;
  pipeline.hops.assign(static_cast<size_t>(count), Seconds(transfer));
  return pipeline;
}

}  // namespace trireme::planner
