#include "cost_models/compute.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cost_models/attention.h"
#include "cost_models/measured_kernels.h"
#include "ir/graph/semantics.h"

namespace trireme::cost {
namespace {

using program::OpKind;
using program::Segment;
using program::SegmentOp;

constexpr double kFusedBackwardRecompute = 5.0 / 4;  // q k^T again: 5 products for 4
constexpr double kUnfusedForwardPasses = 6;
constexpr double kUnfusedBackwardPasses = 9;

const spec::PeakRate* findPeak(const spec::DeviceSpec& device, DType dtype) {
  const std::optional<MathFormat> format = mathFormatOf(dtype);
  return format ? device.peak(*format) : nullptr;
}

const program::OperandType& operandOf(const Segment& segment, int32_t index) {
  return segment.operands[static_cast<size_t>(index)];
}

bool isAttention(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kAttentionGrad;
}

bool isProduct(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kMatmulGradInput ||
         kind == OpKind::kMatmulGradWeight;
}

// Of the bytes of the ops [begin, end), those of [begin, front).
double shareOfFront(const Segment& segment, size_t begin, size_t front, size_t end) {
  Bytes ofFront, ofAll;
  for (size_t i = begin; i < end; ++i) {
    const Bytes bytes = graph::opBytes(segment.ops[i], segment.operands);
    ofAll += bytes;
    if (i < front) ofFront += bytes;
  }
  return ofFront / ofAll;
}

// All heads' s x s matrices of one microbatch; the log-sum-exp is [b, heads, s].
Bytes scoresBytes(const Segment& segment, const SegmentOp& op) {
  const auto& lse =
      operandOf(segment, op.kind == OpKind::kAttention ? op.outputs[1] : op.inputs[2]);
  const auto& context =
      operandOf(segment, op.kind == OpKind::kAttention ? op.outputs[0] : op.inputs[1]);
  return Bytes(static_cast<double>(lse.elements() * lse.dims[2] * byteSize(context.dtype)));
}

MathFormat formatOf(const Segment& segment, const SegmentOp& op) {
  if (op.attributes.tf32) return MathFormat::kTf32;
  return mathFormatOf(operandOf(segment, op.inputs[0]).dtype).value_or(MathFormat::kF32);
}

KernelWork attentionWork(const Segment& segment, const SegmentOp& op, bool fused) {
  const bool forward = op.kind == OpKind::kAttention;
  KernelWork work{formatOf(segment, op), graph::opFlops(op, segment.operands),
                  graph::opBytes(op, segment.operands), 1};
  if (fused) {
    work.flops = work.flops * (forward ? kCausalShare : kCausalShare * kFusedBackwardRecompute);
    work.fusedAttention = true;
    return work;
  }
  work.bytes +=
      scoresBytes(segment, op) * (forward ? kUnfusedForwardPasses : kUnfusedBackwardPasses);
  work.numLaunches = forward ? 4 : 6;
  return work;
}

// Operands that enter or leave the ops [begin, end), each counted once.
Bytes externalBytes(const Segment& segment, size_t begin, size_t end) {
  std::set<int32_t> made, outside;
  for (size_t i = begin; i < end; ++i) {
    for (int32_t input : segment.ops[i].inputs)
      if (!made.contains(input)) outside.insert(input);
    made.insert(segment.ops[i].outputs.begin(), segment.ops[i].outputs.end());
  }
  for (int32_t output : made)
    if (!segment.temporary[static_cast<size_t>(output)]) outside.insert(output);
  for (size_t i = end; i < segment.ops.size(); ++i)
    for (int32_t input : segment.ops[i].inputs)
      if (made.contains(input)) outside.insert(input);
  Bytes total;
  for (int32_t operand : outside)
    total += Bytes(static_cast<double>(operandOf(segment, operand).bytes()));
  return total;
}

KernelWork opWork(const Segment& segment, const SegmentOp& op, const spec::StackProfile& stack) {
  if (isAttention(op.kind)) return attentionWork(segment, op, stack.flashAttention);
  return {formatOf(segment, op), graph::opFlops(op, segment.operands),
          graph::opBytes(op, segment.operands), 1};
}

// Calls visit(begin, end, work) for every kernel: the ops [begin, end) of `segment`.
template <typename Visit>
void forEachKernel(const Segment& segment, const spec::StackProfile& stack, Visit visit) {
  for (size_t begin = 0; begin < segment.ops.size();) {
    size_t end = begin;
    while (end < segment.ops.size() && graph::isElementwise(segment.ops[end].kind)) ++end;
    if (end > begin + 1) {
      visit(begin, end,
            KernelWork{MathFormat::kF32, Flops(0), externalBytes(segment, begin, end), 1});
      begin = end;
    } else {
      visit(begin, begin + 1, opWork(segment, segment.ops[begin], stack));
      ++begin;
    }
  }
}

// The measured times of the ops [begin, end); those that were not measured take none.
Seconds measuredTime(const Segment& segment, size_t begin, size_t end,
                     const spec::DeviceSpec& device) {
  Seconds total;
  for (size_t i = begin; i < end; ++i) {
    const SegmentOp& op = segment.ops[i];
    if (const spec::KernelTiming* timing =
            device.kernel(kernelName(op, device.kind), kernelType(op, segment.operands)))
      total += timeOf(*timing, countsOf(op, segment.operands, device.kind));
  }
  return total;
}

}  // namespace

Seconds kernelTime(const KernelWork& work, const spec::DeviceSpec& device) {
  const Seconds memory = work.bytes / (device.memoryBandwidth * device.memoryEfficiency);
  Seconds products;
  if (work.flops.count() > 0) {
    const double reached =
        work.fusedAttention ? device.attentionEfficiency : device.matmulShare(work.format);
    const spec::PeakRate* peak = device.peak(work.format);
    TRIREME_CHECK(peak != nullptr);
    products = work.flops / (peak->rate * reached);
  }
  return device.launchOverhead * work.numLaunches + std::max(products, memory);
}

std::vector<KernelWork> kernelsOf(const Segment& segment, const spec::StackProfile& stack) {
  std::vector<KernelWork> kernels;
  forEachKernel(segment, stack,
                [&](size_t, size_t, const KernelWork& work) { kernels.push_back(work); });
  return kernels;
}

ComputeTime computeTime(const Segment& segment, int32_t recomputedOps,
                        const spec::DeviceSpec& device, const spec::StackProfile& stack) {
  ComputeTime all;
  const auto front = static_cast<size_t>(recomputedOps);
  forEachKernel(segment, stack, [&](size_t begin, size_t end, const KernelWork& work) {
    const Seconds time =
        std::max(kernelTime(work, device), measuredTime(segment, begin, end, device));
    all.total += time;
    const OpKind kind = segment.ops[begin].kind;
    if (begin < front)
      all.recomputed += end <= front ? time : time * shareOfFront(segment, begin, front, end);
    else if (isAttention(kind))
      all.attention += time;
    else if (isProduct(kind))
      all.products += time;
  });
  return all;
}

Seconds segmentTime(const Segment& segment, const spec::DeviceSpec& device,
                    const spec::StackProfile& stack) {
  return computeTime(segment, 0, device, stack).total;
}

Seconds instructionTime(const program::Instruction& instruction, const program::Role& role,
                        const spec::DeviceSpec& device) {
  const auto bytesOf = [&](int32_t buffer) {
    return buffer < 0
               ? Bytes(0)
               : Bytes(static_cast<double>(role.buffers[static_cast<size_t>(buffer)].bytes()));
  };
  // At least what was measured of the kernel, which works through `bytes` of `type`.
  const auto atLeast = [&](Seconds time, std::string_view kernel, Bytes bytes, DType type) {
    const spec::KernelTiming* timing = device.kernel(kernel, type);
    if (timing == nullptr) return time;
    return std::max(time,
                    timeOf(*timing, countsOf(bytes.count() / static_cast<double>(byteSize(type)))));
  };
  KernelWork work;
  using Kind = program::InstructionKind;
  switch (instruction.kind) {
    case Kind::kZero:
      if (!putsZerosOff(device)) work.bytes = bytesOf(instruction.buffers[0]);
      return kernelTime(work, device);
    case Kind::kLoadBatch:
      work.bytes = (bytesOf(instruction.buffers[0]) + bytesOf(instruction.buffers[1])) * 2;
      return kernelTime(work, device);
    case Kind::kSumSquares:
    case Kind::kAdamW: {
      // With sharded state a member reads and writes its own part of everything.
      const program::Bucket& bucket = role.buckets[static_cast<size_t>(instruction.bucket)];
      const Bytes owned = bytesOf(bucket.moment1);  // state dtype, as gradient and master weights
      const DType state = role.buffers[static_cast<size_t>(bucket.moment1)].dtype;
      if (instruction.kind == Kind::kSumSquares) {
        work.bytes = owned;
        return atLeast(kernelTime(work, device), "sum_squares", owned, state);
      }
      const bool hasMaster = bucket.master >= 0 && bucket.master != bucket.parameter;
      const Bytes parameter =
          hasMaster ? bytesOf(bucket.parameter) * (owned / bytesOf(bucket.gradient)) : Bytes(0);
      work.bytes = owned + owned * (3 * 2) + parameter;
      return atLeast(kernelTime(work, device), "adamw", owned, state);
    }
    default:
      return {};
  }
}

bool putsZerosOff(const spec::DeviceSpec& device) { return device.kind == spec::DeviceKind::kHost; }

FlopsPerSecond matmulPeak(const spec::DeviceSpec& device, DType dtype) {
  const spec::PeakRate* peak = findPeak(device, dtype);
  TRIREME_CHECK(peak != nullptr);
  return peak->rate;
}

Status noPeak(const spec::DeviceSpec& device, MathFormat format) {
  std::vector<std::string_view> known;
  for (const spec::PeakRate& peak : device.matmul) known.push_back(mathFormatName(peak.format));
  return invalidArgument(fmt::format("device {}: no matmul peak for {}, but for {}", device.name,
                                     mathFormatName(format), fmt::join(known, ", ")));
}

Status checkDevice(const spec::DeviceSpec& device, DType dtype) {
  const spec::PeakRate* peak = findPeak(device, dtype);
  const bool isHost = device.kind == spec::DeviceKind::kHost;
  const auto isOfType = [&](const spec::KernelTiming& kernel) { return kernel.dtype == dtype; };
  const bool isMeasuredApart =
      isHost && !device.kernels.empty() && std::ranges::none_of(device.kernels, isOfType);
  const std::optional<MathFormat> format = mathFormatOf(dtype);
  if (peak == nullptr && !isHost && format) return noPeak(device, *format);
  if (peak == nullptr || isMeasuredApart)
    return invalidArgument(fmt::format(
        "device {}: no {} for {}{}", device.name,
        peak == nullptr ? "matmul peak" : "kernels were measured", dtypeName(dtype),
        isHost ? "; `trireme calibrate --precision` measures what a precision needs" : ""));
  if (peak->rate.count() <= 0 || device.matmulEfficiency <= 0 || device.attentionEfficiency <= 0)
    return invalidArgument(fmt::format("device {}: matmul rate for {} must be positive",
                                       device.name, dtypeName(dtype)));
  if (device.memoryBandwidth.count() <= 0 || device.memoryEfficiency <= 0)
    return invalidArgument(
        fmt::format("device {}: memory bandwidth must be positive", device.name));
  return {};
}

}  // namespace trireme::cost
