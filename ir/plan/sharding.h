// Where a tensor's parts live. The only shape arithmetic in the project: memory, verifier, lowering
// and allocator call it.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"

namespace trireme::plan {

// How one tensor lies over the tp axis (data parallelism splits the batch before the graph is
// built). At most one dim is split.
struct Sharding {
  int32_t tpDim = -1;  // dim split over tp into equal contiguous parts; -1: none
  bool operator==(const Sharding&) const = default;
};

struct MeshShape {
  int64_t tp = 1;
  bool sequenceParallel = false;
};

// The sharding that a tensor has between ops: a dim labelled group, head, ffn or vocabulary is
// split over tp; else, under sequence parallelism, the sequence dim of a tensor of the sequence
// region; else replicated. Parameters follow the same rule.
Sharding homeSharding(const graph::Tensor& tensor, const MeshShape& mesh);

// Local sizes. Requires that the split dim divides (verifyPlan guarantees it).
std::vector<int64_t> localShape(const std::vector<graph::Dim>& dims, const Sharding& sharding,
                                const MeshShape& mesh);

// Where a rank stands. With d = dpShard + plan.dpShard dpReplicate:
//
//   tp-cp-dp-pp   rank = tp + plan.tp (cp + plan.cp (d + plan.dp() pp)), the order of Megatron-Core
//                 (tp-cp-ep-dp-pp) and torchtitan
//   tp-cp-pp-dp   rank = tp + plan.tp (cp + plan.cp (pp + plan.pp d))
//
// tp 2, pp 2, dp 2; ranks as stage.replica, each of both tp ranks:
//   tp-cp-dp-pp   0-1: 0.0   2-3: 0.1   4-5: 1.0   6-7: 1.1
//   tp-cp-pp-dp   0-1: 0.0   2-3: 1.0   4-5: 0.1   6-7: 1.1
struct RankCoordinates {
  int64_t tp = 0, cp = 0, dpShard = 0, dpReplicate = 0, pp = 0;
  bool operator==(const RankCoordinates&) const = default;
};
RankCoordinates coordinatesOf(int64_t rank, const Plan& plan);
int64_t rankOf(const RankCoordinates& c, const Plan& plan);

// From a rank to the one that differs in the next stage alone, and in the next replica.
int64_t stageStride(const Plan& plan);
int64_t replicaStride(const Plan& plan);

}  // namespace trireme::plan
