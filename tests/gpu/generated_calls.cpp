#include "tests/gpu/generated_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/program/walk.h"
#include "ir/program/workspace.h"
#include "runtime/device/cuda/segment_calls.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime::gpu {
namespace {

using program::OperandType;
using program::OpKind;
using program::Segment;
using program::SegmentOp;

// Operands begin where arenas place the least aligned, and no better.
constexpr int64_t kAlignment = 64, kOffset = 32;
constexpr int64_t kGuardBytes = 256;
// What is read beyond an operand spoils what is made of it; what is written behind a result, were
// it made of that, is seen.
constexpr char kPoison = '\xFF';  // a NaN in every type
constexpr char kGuard = '\xA5';   // a small number in every type

bool contains(const std::vector<int32_t>& operands, int32_t operand) {
  return std::find(operands.begin(), operands.end(), operand) != operands.end();
}

Tensor tensorOf(const Bytes& bytes, const OperandType& type) {
  return {const_cast<char*>(bytes.data()), &type};
}

std::set<int32_t> producedIn(const Segment& segment) {
  std::set<int32_t> produced;
  for (const SegmentOp& op : segment.ops) produced.insert(op.outputs.begin(), op.outputs.end());
  return produced;
}

// Draws the inputs of an op.
class Draw {
 public:
  Draw(int64_t numIds, std::mt19937_64& random) : numIds_(numIds), random_(random) {}

  void input(const SegmentOp& op, size_t i, const Tensor& to) {
    if (to.dtype() == DType::kI32)
      fill(to, std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(numIds_) - 1));
    else if (isInverseDeviation(op, i) || isSumOfExponentials(op.kind, i))
      fill(to, std::uniform_real_distribution<double>(0.5, 2));
    else if (op.kind == OpKind::kAttentionGrad && i == 2)  // of some 7 to 50 exponentials
      fill(to, std::uniform_real_distribution<double>(2, 4));
    else if ((op.kind == OpKind::kMatmul || op.kind == OpKind::kMatmulGradInput) && i == 1)
      fill(to, std::normal_distribution<double>(0, kWeight));
    else
      fill(to, std::normal_distribution<double>());
  }
  void sum(const Tensor& to) { fill(to, std::normal_distribution<double>()); }

 private:
  // So that products of some 60 to 200 columns are about as large as what they are made of: in f16
  // a chain of several stays finite.
  static constexpr double kWeight = 0.1;

  static bool isInverseDeviation(const SegmentOp& op, size_t i) {
    return (op.kind == OpKind::kLayerNormGrad || op.kind == OpKind::kRmsNormGrad) &&
           i + 2 == op.inputs.size();
  }
  static bool isSumOfExponentials(OpKind kind, size_t i) {
    return (kind == OpKind::kTokenLoss && i == 1) || (kind == OpKind::kLossGrad && i == 2);
  }
  template <typename D>
  void fill(const Tensor& to, D distribution) {
    for (int64_t i = 0; i < to.elements(); ++i) to.set(i, distribution(random_));
  }

  int64_t numIds_;
  std::mt19937_64& random_;
};

}  // namespace

// The first call with an operand that an op of the segment makes is the one that makes it.
std::vector<GeneratedCall> generatedCallsOf(const Segment& segment,
                                            const program::CompiledSegment& compiled) {
  const std::set<int32_t> produced = producedIn(segment);
  std::set<int32_t> done;
  std::vector<GeneratedCall> calls;
  for (const program::KernelCall& kernel : compiled.calls) {
    if (kernel.kind == program::KernelCallKind::kLibrary) {
      done.insert(kernel.op.outputs.begin(), kernel.op.outputs.end());
      continue;
    }
    GeneratedCall& call = calls.emplace_back();
    call.kernel = &kernel;
    for (const int32_t operand : kernel.operands) {
      if (contains(call.read, operand) || contains(call.written, operand)) continue;
      const bool writes = produced.contains(operand) && !done.contains(operand);
      (writes ? call.written : call.read).push_back(operand);
    }
    done.insert(call.written.begin(), call.written.end());
  }
  return calls;
}

Result<std::set<Overlay>> overlaysOf(const std::vector<RankProgram>& ranks, int32_t segment,
                                     const std::vector<OperandType>& types,
                                     const GeneratedCall& call) {
  std::set<Overlay> overlays;
  for (const RankProgram& rank : ranks)
    for (const std::vector<void*>& addresses : cuda::callsOf(rank, segment)) {
      const auto begin = [&](int32_t operand) {
        return static_cast<const char*>(addresses[static_cast<size_t>(operand)]);
      };
      const auto end = [&](int32_t operand) {
        return begin(operand) + types[static_cast<size_t>(operand)].bytes();
      };
      Overlay overlay;
      for (const int32_t to : call.written)
        for (const int32_t from : call.read) {
          if (begin(to) >= end(from) || begin(from) >= end(to)) continue;
          if (begin(to) != begin(from) || end(to) != end(from))
            return Error(internalError(fmt::format("{}: operand {} lies over a part of operand {}",
                                                   call.kernel->symbol, to, from)));
          overlay[to] = from;
        }
      overlays.insert(overlay);
    }
  return overlays;
}

Result<SegmentValues> runSegmentByReference(const Segment& segment,
                                            const program::KernelContext& context, int64_t numIds,
                                            std::mt19937_64& random) {
  SegmentValues values;
  for (const OperandType& type : segment.operands)
    values.before.emplace_back(static_cast<size_t>(type.bytes()), kPoison);
  values.after = values.before;
  std::vector<void*> addresses;
  for (Bytes& bytes : values.after) addresses.push_back(bytes.data());
  std::set<int32_t> known, made;
  Draw draw(numIds, random);
  const auto drawOnce = [&](int32_t operand, auto of) {
    if (!known.insert(operand).second) return;
    const auto i = static_cast<size_t>(operand);
    of(tensorOf(values.after[i], segment.operands[i]));
    values.before[i] = values.after[i];
  };
  for (const SegmentOp& op : segment.ops) {
    for (size_t i = 0; i < op.inputs.size(); ++i)
      drawOnce(op.inputs[i], [&](const Tensor& to) { draw.input(op, i, to); });
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const int32_t output = op.outputs[i];
      if (made.contains(output) || known.contains(output))
        return Error(
            internalError(fmt::format("{}: operand {} is written again", segment.name, output)));
      // Of others the reference's results are not finite, since they start as NaN.
      if (program::isAccumulated(op.kind, i))
        drawOnce(output, [&](const Tensor& to) { draw.sum(to); });
      known.insert(output);
      made.insert(output);
    }
    TRIREME_RETURN_IF_ERROR(
        runReferenceOp({&op, segment.operands.data(), addresses.data(), &context, nullptr, nullptr})
            .withContext(segment.name));
  }
  return values;
}

CallImage::CallImage(const Segment& segment, const GeneratedCall& call, const SegmentValues& values,
                     const Overlay& overlay)
    : segment_(segment), call_(call), values_(values) {
  for (const int32_t operand : call.read) place(operand, kPoison);
  for (const int32_t operand : call.written)
    if (overlay.contains(operand))
      places_[operand] = places_.at(overlay.at(operand));
    else
      place(operand, kGuard);
}

void CallImage::place(int32_t operand, char guard) {
  const auto i = static_cast<size_t>(operand);
  const bool isResult = contains(call_.written, operand);
  const Bytes& value = (isResult ? values_.before : values_.after)[i];
  const auto used = static_cast<int64_t>(bytes_.size());
  const int64_t offset = program::roundUp(used + kGuardBytes, kAlignment) + kOffset;
  places_[operand] = {offset, static_cast<int64_t>(value.size())};
  bytes_.resize(static_cast<size_t>(offset), guard);
  bytes_.insert(bytes_.end(), value.begin(), value.end());
  bytes_.resize(bytes_.size() + kGuardBytes, guard);
}

std::vector<void*> CallImage::addresses(char* base) const {
  std::vector<void*> addresses(segment_.operands.size(), nullptr);
  for (const auto& [operand, place] : places_)
    addresses[static_cast<size_t>(operand)] = base + place.offset;
  return addresses;
}

std::string CallImage::check(const Bytes& after, double tolerance) const {
  if (std::string wrong = checkOutside(after); !wrong.empty()) return wrong;
  for (const int32_t operand : call_.written)
    if (std::string wrong = checkResult(operand, after, tolerance); !wrong.empty()) return wrong;
  return "";
}

// Everything but the results is as before.
std::string CallImage::checkOutside(const Bytes& after) const {
  Bytes expected = bytes_;
  for (const int32_t operand : call_.written) {
    const Place& at = places_.at(operand);
    std::copy_n(after.begin() + at.offset, at.bytes, expected.begin() + at.offset);
  }
  const auto [found, _] = std::mismatch(after.begin(), after.end(), expected.begin());
  if (found == after.end()) return "";
  const int64_t byte = found - after.begin();
  for (const int32_t operand : call_.read) {
    const Place& at = places_.at(operand);
    if (byte >= at.offset && byte < at.offset + at.bytes)
      return fmt::format("operand {}, which is only read, is changed", operand);
  }
  for (const auto& [operand, at] : places_)
    if (byte >= at.offset + at.bytes && byte < at.offset + at.bytes + kGuardBytes)
      return fmt::format("byte {} behind operand {} is written", byte - at.offset - at.bytes,
                         operand);
  return "memory before an operand is written";
}

std::string CallImage::checkResult(int32_t operand, const Bytes& after, double tolerance) const {
  const auto index = static_cast<size_t>(operand);
  const OperandType& type = segment_.operands[index];
  const Tensor expected = tensorOf(values_.after[index], type);
  const auto begin = after.begin() + places_.at(operand).offset;
  const Bytes result(begin, begin + type.bytes());
  const Tensor actual = tensorOf(result, type);
  double largest = 0;
  for (int64_t i = 0; i < type.elements(); ++i) {
    if (!std::isfinite(expected.at(i)))
      return fmt::format("operand {}, element {}: the reference has {}, which says nothing",
                         operand, i, expected.at(i));
    largest = std::max(largest, std::abs(expected.at(i)));
  }
  for (int64_t i = 0; i < type.elements(); ++i) {
    if (!(std::abs(actual.at(i) - expected.at(i)) <= tolerance * largest))
      return fmt::format("operand {}, element {}: {} for {}, where the largest is {}", operand, i,
                         actual.at(i), expected.at(i), largest);
  }
  return "";
}

}  // namespace trireme::runtime::gpu
