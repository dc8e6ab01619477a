// Time of causal attention on a GPU, fused and unfused.
#pragma once
#include <cstdint>

#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// Of the s x s products of causal attention, what a fused kernel computes.
inline constexpr double kCausalShare = 0.5;

using program::Direction;  // kForward or kBackward

struct AttentionTime {
  Seconds device;
  int64_t numKernels = 0;
};

// One layer, one microbatch, the heads and the part of the sequence of one rank: b sequences, a
// heads of size d, s keys, s / cp queries.
//
// Flash kinds. Causal attention needs half of the 4 b a s^2 d / cp FLOPs of both products, and
// backward 2.5 times as many (five products for two); blocks on the diagonal are computed whole, so
// of s keys s + 128. Rates are the device's for the kind of kernel. A kernel has b a s / (128 cp)
// blocks of 128 queries; where they are few, the last wave of them on the multiprocessors is felt.
// At least the time of moving queries, keys, values and the result. Of cp > 1 every step but the
// first moves StackDescription::ringBytes per element of its results besides, and is at
// blockAttentionEfficiency of the rate: of cp parts of the work cp - 1 are.
//
// Unfused. Products in batches of b a, s x s, at batchedMatmulEfficiency, forward two and backward
// four, all of it computed; and passes over the b a s^2 / cp scores, e bytes an element:
//   forward   softmax (with scale and mask: fused 2 e; else 2 passes more of 2 e + 1)
//             dropout 2 e + 1
//   backward  dropout 2 e + 1, softmax 3 e (unfused: scale and mask 2 e more)
// The fused softmax is Megatron's: its blocks take four heads, and where they do not divide b a,
// kernels of PyTorch do the same in f32, one each to cast, scale, mask, normalise and cast back.
// (An upper bound for XLA's fusions, which have no blocks.)
AttentionTime attentionTime(const spec::ModelSpec& model, const plan::Plan& plan,
                            const spec::DeviceSpec& device, const spec::StackDescription& stack,
                            Direction direction);

// Keys and values of a whole sequence, that cp ranks pass on to each other: bytes of a microbatch.
double keyValueBytes(const spec::ModelSpec& model, const plan::Plan& plan);

}  // namespace trireme::cost
