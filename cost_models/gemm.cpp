#include "cost_models/gemm.h"

#include <algorithm>
#include <cmath>

namespace trireme::cost {
namespace {

struct Tile {
  int log2Rows, log2Cols;
  double brought;  // elements, for one product
};
constexpr Tile tileOf(int rows, int cols) {
  return {rows, cols, 1.0 / (1 << rows) + 1.0 / (1 << cols)};
}
constexpr Tile kTiles[] = {tileOf(8, 7), tileOf(7, 8), tileOf(7, 7), tileOf(8, 6),
                           tileOf(6, 8), tileOf(7, 6), tileOf(6, 7), tileOf(6, 6)};
constexpr int64_t kSplits[] = {1, 2, 4};
constexpr int64_t kLeastDepth = 1024;  // of a part: shorter ones are not worth their sums

BytesPerSecond memoryRate(const spec::DeviceSpec& device) {
  return device.memoryBandwidth * device.memoryEfficiency;
}

double efficiencyOf(const Tile& tile, const spec::DeviceSpec& device) {
  return 1 / (1 + device.tileDelivery * tile.brought);
}

int64_t tilesOf(int64_t length, int log2) { return (length + (int64_t{1} << log2) - 1) >> log2; }

// Waves of so many tiles, as they are felt.
double feltWaves(double tiles, const spec::DeviceSpec& device) {
  const double waves = tiles / static_cast<double>(device.numMultiprocessors);
  return device.waveShare * std::ceil(waves) + (1 - device.waveShare) * std::max(waves, 1.0);
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
  const double whole = efficiencyOf(kTiles[0], device);
  const auto units = static_cast<double>(device.numMultiprocessors);
  const double perFlop = whole / rate.count();
  Seconds best(INFINITY);
  for (const int64_t split : kSplits) {
    if (split > 1 && shape.k < split * kLeastDepth) break;
    const auto parts = static_cast<double>(split);
    const double depth = static_cast<double>(shape.k) / parts + device.depthRamp * shape.ramp;
    const Seconds sums =
        split > 1 ? Bytes(4.0 * parts * elements) / memoryRate(device) : Seconds(0);
    for (const Tile& tile : kTiles) {
      const double tiles =
          asDouble(shape.count * tilesOf(shape.m, tile.log2Rows) * tilesOf(shape.n, tile.log2Cols));
      const double flops = 2 * asDouble(int64_t{1} << (tile.log2Rows + tile.log2Cols)) * depth;
      // Most are too slow even if no wave is part empty.
      const double slower = (1 + device.tileDelivery * tile.brought) * perFlop;
      if (Seconds(tiles * parts * flops * slower * (1 - 1e-9)) + sums >= best) continue;
      const Flops work(feltWaves(tiles * parts, device) * units * flops);
      const Seconds time = work / (rate * (efficiencyOf(tile, device) / whole));
      best = std::min(best, std::max(time, memory) + sums);
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
