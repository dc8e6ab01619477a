#include "cost_models/gemm.h"

#include <algorithm>
#include <cmath>

namespace trireme::cost {
namespace {

struct Tile {
  double rows, cols;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64},
                           {64, 256},  {128, 64},  {64, 128},  {64, 64}};
constexpr int64_t kSplits[] = {1, 2, 4};
constexpr int64_t kLeastDepth = 1024;  // of a part: shorter ones are not worth their sums

double tileEfficiency(const Tile& tile, double delivery) {
  return 1 / (1 + delivery * (1 / tile.rows + 1 / tile.cols));
}

BytesPerSecond memoryRate(const spec::DeviceSpec& device) {
  return device.memoryBandwidth * device.memoryEfficiency;
}

// How many there are of one tile, and the rate that they reach.
struct Tiling {
  const Tile& tile;
  double count;
  FlopsPerSecond rate;
};

Tiling tilingOf(const ProductShape& shape, const Tile& tile, FlopsPerSecond rate,
                const spec::DeviceSpec& device) {
  const double reached =
      tileEfficiency(tile, device.tileDelivery) / tileEfficiency(kTiles[0], device.tileDelivery);
  return {tile,
          static_cast<double>(shape.count) * std::ceil(static_cast<double>(shape.m) / tile.rows) *
              std::ceil(static_cast<double>(shape.n) / tile.cols),
          rate * reached};
}

// With one split, without the launch.
Seconds tiledTime(const Tiling& tiling, double split, double depth,
                  const spec::DeviceSpec& device) {
  const double units = static_cast<double>(device.numMultiprocessors);
  const double waves = tiling.count * split / units;
  const double felt =
      device.waveShare * std::ceil(waves) + (1 - device.waveShare) * std::max(waves, 1.0);
  const Flops work(felt * units * 2 * tiling.tile.rows * tiling.tile.cols * depth);
  return work / tiling.rate;
}

}  // namespace

Flops ProductShape::flops() const {
  return Flops(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
               static_cast<double>(count));
}

Bytes ProductShape::bytes() const {
  const double rows = static_cast<double>(m), cols = static_cast<double>(n);
  const double factors = (rows + cols) * static_cast<double>(k) * factorBytes;
  return Bytes(static_cast<double>(count) *
               (factors + rows * cols * resultBytes * (accumulates ? 2 : 1)));
}

Seconds productTime(const ProductShape& shape, FlopsPerSecond peak, const spec::DeviceSpec& device,
                    double share) {
  const FlopsPerSecond rate = peak * (device.matmulEfficiency * share);
  const Seconds memory = shape.bytes() / memoryRate(device);
  if (device.numMultiprocessors == 0)
    return std::max(shape.flops() / rate, memory) + device.launchOverhead;
  const double elements = static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                          static_cast<double>(shape.count);
  Seconds best(INFINITY);
  for (const Tile& tile : kTiles) {
    const Tiling tiling = tilingOf(shape, tile, rate, device);
    for (const int64_t split : kSplits) {
      if (split > 1 && shape.k < split * kLeastDepth) break;
      const auto parts = static_cast<double>(split);
      const double depth = static_cast<double>(shape.k) / parts + device.depthRamp * shape.ramp;
      Seconds time = std::max(tiledTime(tiling, parts, depth, device), memory);
      if (split > 1) time += Bytes(4.0 * parts * elements) / memoryRate(device);
      best = std::min(best, time);
    }
  }
  if (shape.accumulates)
    best +=
        Bytes(2 * shape.resultBytes * elements * device.accumulationExposed) / memoryRate(device);
  return best + device.launchOverhead;
}

Seconds streamTime(Bytes bytes, const spec::DeviceSpec& device) {
  return bytes / memoryRate(device) + device.launchOverhead;
}

}  // namespace trireme::cost
