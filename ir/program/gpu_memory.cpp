#include "ir/program/gpu_memory.h"

#include <algorithm>
#include <cmath>

namespace trireme::program {
namespace {

constexpr int64_t kMostChannels = 32, kReductionChannels = 16, kMessageChannels = 8,
                  kNormChannels = 2;

}  // namespace

int64_t mostChannels(Lane lane) {
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
  return kMostChannels;
}

int64_t channelsOver(BytesPerSecond bandwidth) {
  constexpr double kPerChannel = 12.5e9, kLeast = 2;
  const double channels = std::ceil(bandwidth.count() / kPerChannel);
  return static_cast<int64_t>(std::clamp(channels, kLeast, static_cast<double>(kMostChannels)));
}

double ncclConnections(Lane lane, int64_t channels) {
  constexpr double kRingAndTree = 3, kOneWay = 0.5;
  const bool isMessage = lane == Lane::kForward || lane == Lane::kBackward;
  return static_cast<double>(std::min(channels, mostChannels(lane))) *
         (isMessage ? kOneWay : kRingAndTree);
}

}  // namespace trireme::program
