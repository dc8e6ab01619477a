#include "runtime/data/sample_order.h"

#include "ir/base/rng.h"

namespace trireme::runtime {
namespace {

// Scaled, not taken modulo: every start is as likely as any other to 2^-64 of their number.
int64_t randomStart(const RngKey& key, uint64_t index, int64_t numStarts) {
  const RngWords words =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key);
  const uint64_t draw = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<int64_t>((static_cast<unsigned __int128>(numStarts) * draw) >> 64);
}

constexpr uint32_t kRounds = 6;

// A permutation of [0, size): a Feistel network over the smallest square of a power of two that
// holds the range, repeated until the value lies in it (Black, Rogaway, "Ciphers with arbitrary
// finite domains", CT-RSA 2002: a walk along a cycle). At most four times on average.
uint64_t permuted(const RngKey& key, uint64_t epoch, uint64_t value, uint64_t size) {
  int half = 1;
  while (half < 32 && (uint64_t{1} << (2 * half)) < size) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint32_t round = 1; round <= kRounds; ++round) {
      const RngWords words =
          philox({static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch),
                  static_cast<uint32_t>(epoch >> 32)},
                 key);
      const uint64_t mixed = left ^ (words[0] & mask);
      left = right;
      right = mixed;
    }
    value = (left << half) | right;
  } while (value >= size);
  return value;
}

constexpr std::string_view kOrderNames[] = {"random", "shuffled", "sequential"};

}  // namespace

std::string_view sampleOrderName(SampleOrder order) {
  return kOrderNames[static_cast<size_t>(order)];
}

int64_t samplePosition(SampleOrder order, uint64_t seed, uint64_t index, int64_t length,
                       int64_t total) {
  const RngKey key = makeRngKey(seed, 0, 0, RngStream::kDataShuffle);
  if (order == SampleOrder::kRandom) return randomStart(key, index, total - length);
  const auto numWindows = static_cast<uint64_t>((total - 1) / length);
  uint64_t window = index % numWindows;
  if (order == SampleOrder::kShuffled)
    window = permuted(key, index / numWindows, window, numWindows);
  return static_cast<int64_t>(window) * length;
}

}  // namespace trireme::runtime
