#include "ir/program/gpu_memory.h"

namespace trireme::program {
namespace {

constexpr int64_t kReductionChannels = 16, kMessageChannels = 8, kNormChannels = 2;

}  // namespace

int64_t channelsOf(Lane lane) {
  switch (lane) {
    case Lane::kCollectives:
      break;
    case Lane::kNorms:
      return kNormChannels;
    case Lane::kDpReductions:
    case Lane::kTpReductions:
      return kReductionChannels;
    case Lane::kForward:
    case Lane::kBackward:
      return kMessageChannels;
  }
  return kMaxChannels;
}

int64_t ncclConnections(Lane lane) {
  constexpr int64_t kRingAndTree = 3;
  if (lane == Lane::kForward || lane == Lane::kBackward) return kMaxChannels / 2;
  return channelsOf(lane) * kRingAndTree;
}

int64_t ncclConnections(const Program& program, const Role& role) {
  const auto cliques = numCliques(program, role);
  int64_t number = 0;
  for (size_t lane = 0; lane < kNumLanes; ++lane)
    number += cliques[lane] * ncclConnections(static_cast<Lane>(lane));
  return number;
}

int64_t leastNcclConnections(int64_t tp, int64_t pp, int64_t dp) {
  int64_t number = 0;
  if (tp * pp * dp > 1) number += ncclConnections(Lane::kNorms);
  if (tp > 1) number += ncclConnections(Lane::kCollectives);
  if (dp > 1) number += ncclConnections(Lane::kDpReductions);
  if (pp > 1) number += ncclConnections(Lane::kForward) + ncclConnections(Lane::kBackward);
  return number;
}

}  // namespace trireme::program
