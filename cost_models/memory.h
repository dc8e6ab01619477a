// Memory of the fullest rank. For Trireme's own runtime it is the arena of ir/expand to the byte,
// plus the stack's reserve; other stacks differ by what their profile says.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/units.h"
#include "ir/expand/expand.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

struct MemoryUse {
  int32_t stage = 0;          // pipeline rank
  expand::ArenaUse arena;     // what ir/expand placed
  Bytes optimizerDifference;  // the stack's own bytes per parameter, less arena.optimizer
  Bytes unfusedAttention;     // s x s tensors that the stack keeps
  Bytes reserve;              // context, libraries, fragmentation
  // Per chunk, of the total: what one microbatch keeps from its forward to its backward.
  std::vector<Bytes> perMicrobatch;
  // And of a split backward from there until its weights' gradients are made; otherwise empty.
  std::vector<Bytes> forWeights;
  // Of the total: what there is room for of that. In an arena each chunk has room for its own peak
  // (peakSlots() in in_flight.h); with an allocator there is as much as is alive at once
  // (peakTogether()).
  Bytes inFlight;
  Bytes total() const {
    return Bytes(static_cast<double>(arena.total())) + optimizerDifference + unfusedAttention +
           reserve;
  }
};

// Scores that one layer keeps for one microbatch without a fused attention kernel.
Bytes unfusedScoresBytes(const plan::Plan& plan, const spec::ModelSpec& model);

// Of own programs, what a rank of `role` needs beside its arena: the stack's fixed reserve, and of
// a GPU what the driver and NCCL take, the latter by the fastest links between members of each
// group (ir/program/gpu_memory.h).
Bytes reserveOf(const program::Program& program, const program::Role& role, const plan::Plan& plan,
                const spec::StackProfile& stack, const spec::ClusterSpec& cluster);
// Of every rank at least so much, whatever its layers: that of a first stage, which receives
// nothing from a stage before it, without what keeps tied embeddings equal.
Bytes leastReserve(const plan::Plan& plan, const spec::StackProfile& stack,
                   const spec::ClusterSpec& cluster);
// Connections of NCCL (program::ncclConnections) that every rank of a plan of those degrees has at
// least, whatever its programs and wherever its groups lie.
double leastConnections(int64_t tp, int64_t pp, int64_t dp, const spec::ClusterSpec& cluster);

// Role `role` of the expansion.
//   optimizer   StackProfile::optimizerBytesPerParameter x parameters of the rank, divided by
//               dp when the state is sharded; the arena's own if the profile has no number.
//   attention   without a fused kernel softmax, its dropped copy and the mask stay until the
//               backward: (e + e + 1) bytes, e those of an element, per score and layer, times the
//               microbatches in flight; e = 2: Korthikanti et al. 2022, 5 a s^2 b. Without dropout
//               e bytes. Selective and full recomputation keep them for one layer.
MemoryUse memoryOf(const expand::Expansion& expansion, size_t role, const plan::Plan& plan,
                   const spec::ModelSpec& model, const spec::StackProfile& stack,
                   const spec::ClusterSpec& cluster);

// Of every role in turn.
std::vector<MemoryUse> memoryOfRoles(const expand::Expansion& expansion, const plan::Plan& plan,
                                     const spec::ModelSpec& model, const spec::StackProfile& stack,
                                     const spec::ClusterSpec& cluster);

// The one with the largest total; of several the first. Requires one at least.
const MemoryUse& largestOf(const std::vector<MemoryUse>& memories);

}  // namespace trireme::cost
