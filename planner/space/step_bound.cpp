// What a stage of Trireme's own programs does once per step, at least (StageBound::once).
#include <algorithm>

#include "cost_models/backlog.h"
#include "cost_models/collectives.h"
#include "cost_models/compute.h"
#include "ir/program/workspace.h"
#include "planner/space/block_costs.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {
namespace {

using cost::Levels;
using program::GroupKind;
using spec::CollectiveKind;

struct StageLoad {
  cost::StageTimes times;
  double elements = 0;
};

struct StepQuestion {
  size_t rank;
  bool isLast;
  int64_t buckets;
  bool holdsTied;
  bool mayHaveMore;  // layers than the plan says, on whatever chunks
  const StepLinks& links;
};

// The ranks that share a stage's data, and bytes of an element.
struct DataAxis {
  const Levels& levels;
  int64_t members = 1;
  bool sharesState = false;
  double stateBytes = 0, computeBytes = 0;

  CollectiveKind reduction() const {
    return sharesState ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce;
  }
  Seconds leastReduction(double elements, int64_t parts) const {
    return cost::leastCollectiveTime(reduction(), Bytes(elements * stateBytes), parts, levels);
  }
  // What a layer's matrices take that are reduced, and gathered, by themselves.
  Seconds reductionOf(const LayerMatrices& layer) const {
    return timeOf(reduction(), layer.split, stateBytes) +
           timeOf(reduction(), layer.whole, stateBytes);
  }
  Seconds gatherOf(const LayerMatrices& layer) const {
    return timeOf(CollectiveKind::kAllGather, layer.split, computeBytes) +
           timeOf(CollectiveKind::kAllGather, layer.whole, computeBytes);
  }

 private:
  Seconds timeOf(CollectiveKind kind, int64_t elements, double bytes) const {
    if (elements == 0) return {};
    const int64_t multiple = LayerMatrices::kAlignment * (sharesState ? members : 1);
    const auto padded = static_cast<double>(program::roundUp(elements, multiple));
    return cost::collectiveTime(kind, Bytes(padded * bytes), levels);
  }
};

int64_t layersOf(const plan::Plan& plan, size_t rank) {
  int64_t layers = 0;
  for (const plan::LayerRange& range : plan.layers[rank]) layers += range.count;
  return layers;
}

// An untied head's, with whose gradients the last backward begins.
double earlyOfHead(const BlockCosts& blocks, const StepQuestion& stage) {
  return stage.isLast ? blocks.headMatrixElements : 0;
}

// At least so many are left for the step where the last backward reduces matrices.
int64_t lateBuckets(const BlockCosts& blocks, const StepQuestion& stage) {
  const int64_t early = blocks.layerMatrices.numBuckets() + (earlyOfHead(blocks, stage) > 0);
  return std::max<int64_t>(stage.buckets - early, 1);
}

Seconds headReduction(const BlockCosts& blocks, const StepQuestion& stage, const DataAxis& data) {
  const double elements = earlyOfHead(blocks, stage);
  return elements > 0 ? data.leastReduction(elements, 1) : Seconds(0);
}

// Of what the last backward reduces what is left when it has ended: as the estimate has it
// (cost::StageCost::exposedReduction), layer by layer.
Seconds behind(const plan::Plan& plan, const BlockCosts& blocks, const StageLoad& load,
               const StepQuestion& stage, const DataAxis& data) {
  const bool isSplit = !load.times.weights.empty();  // reductions run beside W alone
  const size_t last = load.times.backward.size() - 1;
  cost::Backlog layer;
  layer.compute(isSplit ? blocks.layer.weights : blocks.layer.backward);
  layer.reduce(data.reductionOf(blocks.layerMatrices));
  cost::Backlog backlog;
  for (size_t chunk = last + 1; chunk-- > 0;) {
    const auto layers = plan.layers[stage.rank][chunk].count;
    const Seconds backward = load.times.backward[chunk];
    const Seconds ofLayers = blocks.layer.backward * static_cast<double>(layers);
    const bool hasEmbedding = stage.rank == 0 && chunk == 0;
    // Of the other microbatches of its group, and what comes before the layers.
    if (chunk < last) backlog.compute(backward * static_cast<double>(plan.pp - 1));
    Seconds before = backward - ofLayers;
    if (hasEmbedding) before -= blocks.embedding.backward;
    backlog.compute(before);
    if (chunk == last) backlog.reduce(headReduction(blocks, stage, data));
    const Seconds after = hasEmbedding ? blocks.embedding.backward : Seconds(0);
    if (isSplit) backlog.compute(ofLayers + after);
    backlog.follow(layer.repeated(layers));
    if (!isSplit) backlog.compute(after);
  }
  return backlog.after(Seconds(0));
}

// The same at least, however many layers more there are: of all, beside the whole backward (of one
// microbatch through the last chunk, of a group of pp through the others), or of the first chunk,
// which comes last, or of its last layer, beside what comes after.
Seconds leastBehind(const plan::Plan& plan, const BlockCosts& blocks, const StageLoad& load,
                    const StepQuestion& stage, const DataAxis& data) {
  const auto layers = static_cast<double>(layersOf(plan, stage.rank));
  Seconds backward;
  for (const Seconds& t : load.times.backward)
    backward += &t == &load.times.backward.back() ? t : t * static_cast<double>(plan.pp);
  for (const Seconds& t : load.times.weights) backward += t;
  const Seconds layer = data.reductionOf(blocks.layerMatrices);
  const Seconds after = stage.rank == 0 ? blocks.embedding.backward : Seconds(0);
  const bool isOneChunk = load.times.backward.size() == 1;
  // A layer more adds its reduction and, at most, so much of the backward beside it.
  const Seconds more =
      blocks.layer.backward * static_cast<double>(isOneChunk ? 1 : plan.pp) + blocks.layer.weights;
  const Seconds all = layer * layers + headReduction(blocks, stage, data);
  const Seconds ofAll = layer > more ? all - backward : Seconds(0);
  const int64_t lastLayers = isOneChunk ? plan.layers[stage.rank].front().count : 1;
  const bool isSplit = !load.times.weights.empty();
  const Seconds beside = isSplit ? blocks.layer.weights : blocks.layer.backward;
  const Seconds ahead = (layer - beside) * static_cast<double>(lastLayers - 1);
  return std::max({ofAll, layer + std::max(ahead, Seconds(0)) - after, Seconds(0)});
}

// Gradients. Of those that the step reduces itself tied tables go last.
Seconds reductionBound(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                       const StageLoad& load, const StepQuestion& stage, const DataAxis& data) {
  const bool overlaps = plan.overlapReductions && plan.dp() > 1;
  const auto layers = static_cast<double>(layersOf(plan, stage.rank));
  const double early =
      overlaps ? blocks.layerMatrices.all() * layers + earlyOfHead(blocks, stage) : 0;
  Seconds reduced = data.leastReduction(load.elements - early,
                                        overlaps ? lateBuckets(blocks, stage) : stage.buckets);
  if (stage.isLast)  // the loss
    reduced += cost::leastCollectiveTime(CollectiveKind::kAllReduce, Bytes(0), 1, data.levels);
  if (stage.holdsTied) {
    const double shards = data.sharesState ? static_cast<double>(data.members) : 1;
    reduced += cost::leastCollectiveTime(CollectiveKind::kAllReduce,
                                         Bytes(blocks.tiedElements * data.stateBytes / shards), 1,
                                         stage.links.tables);
  }
  if (!overlaps) return reduced;
  if (query.cluster.device.kind == spec::DeviceKind::kHost)
    return reduced + data.reductionOf(blocks.layerMatrices) * layers +
           headReduction(blocks, stage, data);
  return std::max(reduced, stage.mayHaveMore ? leastBehind(plan, blocks, load, stage, data)
                                             : behind(plan, blocks, load, stage, data));
}

// Parameters. Those of layers whose gradients were reduced by themselves are gathered so as well.
Seconds gatherBound(const plan::Plan& plan, const BlockCosts& blocks, const StageLoad& load,
                    const StepQuestion& stage, const DataAxis& data) {
  double elements = load.elements;
  int64_t buckets = stage.buckets;
  Seconds gathered;
  if (plan.overlapReductions) {
    const auto layers = static_cast<double>(layersOf(plan, stage.rank));
    gathered = data.gatherOf(blocks.layerMatrices) * layers;
    elements -= blocks.layerMatrices.all() * layers;
    buckets = lateBuckets(blocks, stage);
  }
  return gathered + cost::leastCollectiveTime(CollectiveKind::kAllGather,
                                              Bytes(elements * data.computeBytes), buckets,
                                              data.levels);
}

// Gradient reduction and optimizer of a rank.
cost::OnceTimes stepBound(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                          const StageLoad& load, const StepQuestion& stage) {
  const DataAxis data{stage.links.data, plan.dp(),
                      plan.stateSharding == plan::StateSharding::kOptimizer,
                      static_cast<double>(byteSize(spec::stateDType(plan.training.precision))),
                      static_cast<double>(byteSize(spec::computeDType(plan.training.precision)))};
  // Kernels of every bucket, which move so many bytes for each element.
  const auto kernels = [&](double bytes, int numKernels) {
    const cost::KernelWork work{MathFormat::kF32, Flops(0), Bytes(load.elements * bytes),
                                static_cast<int>(stage.buckets) * numKernels};
    return cost::kernelTime(work, query.cluster.device);
  };
  const double shards = data.sharesState ? static_cast<double>(data.members) : 1;
  cost::OnceTimes once;
  once.reducing =
      reductionBound(query, plan, blocks, load, stage, data) +
      kernels(data.stateBytes / shards, 1) +  // the norm
      cost::leastCollectiveTime(CollectiveKind::kAllReduce, blocks.squares, 1, stage.links.norms);
  // Zeroing and AdamW; zeros that are put off move nothing.
  const double zeroed = cost::putsZerosOff(query.cluster.device) ? 0 : data.stateBytes;
  const double master = data.computeBytes == data.stateBytes ? 0 : data.computeBytes;
  once.updating = kernels(zeroed, 1) + kernels((data.stateBytes * 7 + master) / shards, 1);
  if (data.sharesState) once.updating += gatherBound(plan, blocks, load, stage, data);
  return once;
}

int64_t bucketsAt(const BlockCosts& blocks, size_t rank, size_t p) {
  if (rank == 0) return blocks.firstBuckets;
  return rank == p - 1 ? blocks.lastBuckets : std::max<int64_t>(blocks.innerBuckets, 1);
}

StepQuestion stepQuestionOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank,
                            bool mayHaveMore, const StepLinks& links) {
  const size_t p = plan.layers.size();
  const bool isLast = rank + 1 == p;
  return {rank,
          isLast,
          bucketsAt(blocks, rank, p),
          p > 1 && (rank == 0 || isLast) && blocks.tiedElements > 0,
          mayHaveMore,
          links};
}

StageLoad loadOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank) {
  return {stageTimesOf(plan, blocks, rank), elementsOf(plan, blocks, rank)};
}

}  // namespace

StepLinks stepLinksOf(const Query& query, const plan::Plan& plan) {
  const cost::Ranks ranks = cost::ranksOf(plan, query.cluster);
  const auto levels = [&](GroupKind kind) {
    return cost::levelsOf(cost::groupShape(kind, plan), ranks, query.cluster);
  };
  const bool sharesState = plan.stateSharding == plan::StateSharding::kOptimizer;
  return {levels(GroupKind::kDp), levels(sharesState ? GroupKind::kWorld : GroupKind::kModel),
          levels(GroupKind::kEmbedding)};
}

StageBound stageBoundOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                        size_t rank, const StepLinks& links) {
  StageLoad load = loadOf(plan, blocks, rank);
  const cost::OnceTimes once =
      stepBound(query, plan, blocks, load, stepQuestionOf(plan, blocks, rank, false, links));
  return {std::move(load.times), once};
}

cost::OnceTimes leastOnceOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                            size_t rank, const StepLinks& links) {
  return stepBound(query, plan, blocks, loadOf(plan, blocks, rank),
                   stepQuestionOf(plan, blocks, rank, true, links));
}

}  // namespace trireme::planner
