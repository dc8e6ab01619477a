#include "ir/plan/sharding.h"

namespace trireme::plan {
namespace {

using graph::Label;

bool isSplitOverTp(Label label) {
  return label == Label::kGroup || label == Label::kHead || label == Label::kFfn ||
         label == Label::kVocab;
}

int32_t firstDim(const std::vector<graph::Dim>& dims, bool (*wanted)(Label)) {
  for (size_t i = 0; i < dims.size(); ++i)
    if (wanted(dims[i].label)) return static_cast<int32_t>(i);
  return -1;
}

}  // namespace

Sharding homeSharding(const graph::Tensor& tensor, const MeshShape& mesh) {
  Sharding sharding;
  if (mesh.tp == 1) return sharding;
  sharding.tpDim = firstDim(tensor.dims, isSplitOverTp);
  if (sharding.tpDim < 0 && mesh.sequenceParallel && tensor.sequenceRegion)
    sharding.tpDim = firstDim(tensor.dims, [](Label label) { return label == Label::kSequence; });
  return sharding;
}

std::vector<int64_t> localShape(const std::vector<graph::Dim>& dims, const Sharding& sharding,
                                const MeshShape& mesh) {
  std::vector<int64_t> local;
  local.reserve(dims.size());
  for (const graph::Dim& dim : dims) local.push_back(dim.size);
  if (sharding.tpDim >= 0) {
    int64_t& split = local.at(static_cast<size_t>(sharding.tpDim));
    TRIREME_CHECK(split % mesh.tp == 0);
    split /= mesh.tp;
  }
  return local;
}

RankCoordinates coordinatesOf(int64_t rank, const Plan& plan) {
  const auto take = [&](int64_t degree) {
    const int64_t coordinate = rank % degree;
    rank /= degree;
    return coordinate;
  };
  RankCoordinates c;
  c.tp = take(plan.tp);
  c.cp = take(plan.cp);
  if (plan.rankOrder == RankOrder::kTpCpPpDp) c.pp = take(plan.pp);
  c.dpShard = take(plan.dpShard);
  c.dpReplicate = take(plan.dpReplicate);
  if (plan.rankOrder == RankOrder::kTpCpDpPp) c.pp = rank;
  return c;
}

int64_t rankOf(const RankCoordinates& c, const Plan& p) {
  return c.tp + p.tp * c.cp + stageStride(p) * c.pp +
         replicaStride(p) * (c.dpShard + p.dpShard * c.dpReplicate);
}

int64_t stageStride(const Plan& p) {
  return p.tp * p.cp * (p.rankOrder == RankOrder::kTpCpDpPp ? p.dp() : 1);
}

int64_t replicaStride(const Plan& p) {
  return p.tp * p.cp * (p.rankOrder == RankOrder::kTpCpPpDp ? p.pp : 1);
}

}  // namespace trireme::plan
