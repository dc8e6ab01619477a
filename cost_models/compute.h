// Time of computation on one device: a roofline per kernel.
#pragma once
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/op.h"
#include "ir/program/program.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// What one kernel has to do.
struct KernelWork {
  MathFormat format = MathFormat::kF32;  // of the products
  Flops flops;
  Bytes bytes;  // read and written at least once
  int numLaunches = 1;
  bool fusedAttention = false;
};

//   time = launches * launchOverhead
//        + max(flops / (peak * matmulShare), bytes / (memoryBandwidth * memoryEfficiency))
//
// with attentionEfficiency for fused attention, whose products are small and wait for its softmax.
// Williams, Waterman, Patterson, "Roofline", CACM 2009. The efficiencies are the device file's, and
// so is everything about a host: ranks that share a machine's cores have the rates that the file
// gives to one of them. Requires that the device has a peak for work.format if there are products
// (checkDevice).
Seconds kernelTime(const KernelWork& work, const spec::DeviceSpec& device);

// The kernels of a segment: every op is one, but a run of consecutive elementwise ops is one fused
// kernel that moves only what enters and leaves the run, each operand once.
//
// Attention. Fused: one kernel that skips the masked half of the s x s products and, backward,
// computes q k^T again (5 products for 4), so it does 1/2 resp. 5/8 of the model FLOPs of ir/graph.
// Unfused (StackProfile::flashAttention = false): all products, and the s x s tensors
// of every head go through memory, in compute dtype:
//   forward   scores w, softmax r w, dropout r w, product r             = 6 passes, 4 kernels
//   backward  dropped r, dProb w, dropout r w, softmax r r w, 2 products r r  = 9 passes, 6 kernels
std::vector<KernelWork> kernelsOf(const program::Segment& segment, const spec::StackProfile& stack);

// By what takes the time.
struct ComputeTime {
  Seconds total;
  // Parts of it; the rest is elementwise: norms, activations, dropout, sums, lookups, the loss.
  Seconds products, attention;
  Seconds recomputed;  // of any of these kinds, which is then in no other part
};

// The kernels one after the other. Of kernels that were measured (measured_kernels.h) a chain
// takes what its ops do, and a kernel no less than the roofline: max(kernelTime, sum over ops).
// `recomputedOps` ops at the front are recomputed. A kernel that fuses some of them with others is
// recomputed as far as its bytes, operand by operand, are theirs.
ComputeTime computeTime(const program::Segment& segment, int32_t recomputedOps,
                        const spec::DeviceSpec& device, const spec::StackProfile& stack);
// The total of it.
Seconds segmentTime(const program::Segment& segment, const spec::DeviceSpec& device,
                    const spec::StackProfile& stack);

// Instructions that compute without a segment: kZero, kSumSquares, kAdamW and kLoadBatch, all bound
// by memory. AdamW reads the gradient, both moments and the master weights and writes the last
// three and, where it is another buffer, the parameter. No less than the device's "sum_squares" and
// "adamw", if they were measured. kZero moves nothing where zeros are put off. No time for other
// kinds.
Seconds instructionTime(const program::Instruction& instruction, const program::Role& role,
                        const spec::DeviceSpec& device);

// Whether products write what they would add to zeros (runtime/executor/deferred_zeros.h), as on a
// host. What else accumulates is zeroed there after all, which is left out: vectors, and the table
// of a lookup that no product shares, whose zeros are a seventh of what AdamW moves of it.
bool putsZerosOff(const spec::DeviceSpec& device);

// The peak for products of `dtype`. Requires checkDevice.
FlopsPerSecond matmulPeak(const spec::DeviceSpec& device, DType dtype);

// kInvalidArgument: the device has no peak rate for `dtype`, or a rate or efficiency is not
// positive.
Status checkDevice(const spec::DeviceSpec& device, DType dtype);
// kInvalidArgument, which names the formats that the device has a peak for.
Status noPeak(const spec::DeviceSpec& device, MathFormat format);

}  // namespace trireme::cost
