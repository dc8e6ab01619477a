// Kernels of the runtime, whose times are measured: products fall short of the best rate in ways
// that depend on the shape, and on a CPU most other ops are bound by arithmetic (random numbers,
// exp), not by memory.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/op.h"
#include "ir/spec/cluster_spec.h"

namespace trireme::cost {

// How many of each spec::KernelUnit a kernel has.
using KernelCounts = std::array<double, spec::kNumKernelUnits>;

// One call, and
//   products    t tokens, i inputs, o outputs:  product t i o,  input t i,  output t o,  weight o i
//               (all three: y = x w^T and both of its derivatives)
//   attention   of sequences of s = blocks of r = AttentionBlocking::kRows (the last one shorter)
//               in b samples with H heads of d:  with S = b H x the elements of those blocks that
//               causality does not skip,
//               score S,  dropped_score S if there is dropout, else 0,
//               product S d x 2 forward, x 5 backward,  element: of qkv
//   others      element: of the largest operand, of a lookup the output's;  row t;
//               far_element: those beyond its first 2 MiB, if `device` is a host. What is larger
//               comes from further away: on a Xeon with a second-level cache of 2 MiB, elements
//               of tensors of 4 MiB and more took twice as long as those of up to 2 MiB.
KernelCounts countsOf(const program::SegmentOp& op,
                      const std::vector<program::OperandType>& operands, spec::DeviceKind device);
// Of the optimizer's kernels, beside whose elements a call is nothing.
KernelCounts countsOf(double elements);

// Of the first operand that is no integer.
DType kernelType(const program::SegmentOp& op, const std::vector<program::OperandType>& operands);

// Of spec::measuredKernelNames(): that of the op or, on a GPU, of its products in tf32.
std::string_view kernelName(const program::SegmentOp& op, spec::DeviceKind device);

Seconds timeOf(const spec::KernelTiming& timing, const KernelCounts& counts);

struct TimedKernel {
  std::string kernel;
  DType dtype = DType::kF32;
  KernelCounts counts{};
  Seconds time;
};

struct FittedTime {
  Seconds measured, fitted;
  KernelCounts counts{};
};

struct KernelFit {
  std::vector<spec::KernelTiming> kernels;  // without a source
  std::vector<double> meanErrors;           // of each: mean |fitted / measured - 1|
  std::vector<int> numTimed;
  std::vector<std::vector<FittedTime>> times;  // of each, in the order in which they were given
};

// Per kernel and type, in the order of their first appearance: the times per unit, none negative,
// with the least sum of ((fitted - measured) / measured)^2, rounded to 4 digits. Exact: of every
// set of units that may be above zero the normal equations are solved, and the best admissible
// solution wins.
//
// kInvalidArgument: a time is not positive, or a kernel has fewer times than it has units.
Result<KernelFit> fitKernels(const std::vector<TimedKernel>& timed);

// Segments of one op each, of sizes between those of a tiny model and those of a large one's rank:
// what to time on a host to know its kernels for `type`. Every op that programs have is there.
std::vector<program::Segment> hostProbes(DType type);

}  // namespace trireme::cost
