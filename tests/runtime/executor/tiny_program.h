// A hand-built program with every kind of instruction (if scaled), small enough to be worked out on
// paper.
//
// The "model": x = sum of all weights, elementwise; each of 2 stages has 3 layers with one weight
// of 5 ones. Every weight's gradient is defined as the activation that leaves its stage.
//
//   stage 0, forward   load batch; y = 0; 3 times y += w; all-reduce y over tp; send y
//   stage 1, forward   recv x; y = x; 3 times y += w; loss += sum(log(y) - y)
//   stage 1, backward  3 times (reversed) g += y; send y
//   stage 0, backward  recv d; 3 times (reversed) g += d
//   step               reduce-scatter g over dp (or all-reduce if not sharded); all-reduce the loss
//   over
//                      dp (stage 1); squares; all-reduce squares over the world (or the model);
//                      AdamW; the loss scale (if scaled); all-gather w over dp (if sharded)
//
// With ones: y = 3 tp on stage 0, 3 tp + 3 on stage 1.
#pragma once
#include "ir/program/bundle.h"

namespace trireme::runtime {

struct TinyOptions {
  int32_t tp = 2, dp = 2;
  int32_t numMicrobatches = 3;
  bool sharded = true;
  bool scaled = false;  // keeps a loss scale of 1, as programs in f16 keep theirs
};

inline constexpr int64_t kTinyWidth = 5;
inline constexpr int32_t kTinyLayersPerStage = 3;

program::Bundle tinyBundle(const TinyOptions& options);

}  // namespace trireme::runtime
