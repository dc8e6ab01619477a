// Counter-based random numbers: a value depends on its key and its place, never on what was drawn
// before. Nothing in a key or a counter may depend on the plan.
//
// Philox-4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace trireme {

struct RngKey {
  uint32_t low = 0;
  uint32_t high = 0;
};

using RngWords = std::array<uint32_t, 4>;

// Ten rounds of Philox-4x32 on `counter` under `key`.
inline RngWords philox(RngWords counter, RngKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key.low, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key.high, static_cast<uint32_t>(p0)};
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return counter;
}

// The purposes that draw numbers. The value is part of every key: never renumber.
enum class RngStream : uint32_t {
  kInit = 1,
  kEmbeddingDropout = 2,
  kAttentionDropout = 3,
  kAttentionOutDropout = 4,
  kMlpOutDropout = 5,
  kDataShuffle = 6,
};

// The key of one op in one step: `layer` is the logical layer (0-based), 0 outside the layers.
inline RngKey makeRngKey(uint64_t seed, uint64_t step, uint32_t layer, RngStream stream) {
  const RngWords mixed = philox({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                                 layer, static_cast<uint32_t>(stream)},
                                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {mixed[0], mixed[1]};
}

// The words of elements 4 quad ... 4 quad + 3 of global sample `sample` (of tensor `sample` when
// initialising).
inline RngWords randomWords(RngKey key, uint64_t sample, uint64_t quad) {
  return philox({static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32),
                 static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
                key);
}

// The word of global element `element` of a microbatch's tensor with global sample `sample`:
//   [s,b,h...]: (global position) * (global width) + global column
//   attention:  ((global head) * S + query) * S + key
inline uint32_t randomWord(RngKey key, uint64_t sample, uint64_t element) {
  return randomWords(key, sample, element >> 2)[element & 3];
}

// An element is kept if its word is at or above this. The probability is exact to 2^-32.
inline uint32_t dropoutThreshold(double probability) {
  return static_cast<uint32_t>(probability * 4294967296.0);
}

// Standard normals of elements [first, first + values.size()) of tensor `tensor`; in double, so
// that every dtype starts from the same draw. A value is the same in whatever range it is asked
// for. By Box and Muller (Annals of Mathematical Statistics 29, 1958), from the words w of
// randomWord():
//
//   element 4 q + 2 p      sqrt(-2 ln u) cos(2 pi v)    u = (w[4 q + 2 p] + 1) / 2^32, in (0, 1]
//   element 4 q + 2 p + 1  sqrt(-2 ln u) sin(2 pi v)    v = w[4 q + 2 p + 1] / 2^32
void randomNormals(RngKey key, uint64_t tensor, uint64_t first, std::span<double> values);

inline double randomNormal(RngKey key, uint64_t tensor, uint64_t element) {
  double value = 0;
  randomNormals(key, tensor, element, {&value, 1});
  return value;
}

}  // namespace trireme
