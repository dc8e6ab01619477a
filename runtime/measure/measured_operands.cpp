#include "runtime/measure/measured_operands.h"

#include <algorithm>
#include <cstring>

#include "ir/program/workspace.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime {
namespace {

using program::OpKind;
using program::Segment;

constexpr int64_t kOperandAlignment = 64;  // as in an arena

int64_t strideOf(const program::OperandType& type) {
  return program::roundUp(std::max<int64_t>(type.bytes(), 1), kOperandAlignment);
}

// Operands that are the weight of a product, or its gradient.
std::vector<bool> weightsOf(const Segment& segment) {
  std::vector<bool> weights(segment.operands.size(), false);
  for (const program::SegmentOp& op : segment.ops) {
    if (op.kind == OpKind::kMatmul || op.kind == OpKind::kMatmulGradInput)
      weights[static_cast<size_t>(op.inputs[1])] = true;
    if (op.kind == OpKind::kMatmulGradWeight) weights[static_cast<size_t>(op.outputs[0])] = true;
  }
  return weights;
}

}  // namespace

Result<char*> OperandMemory::reserve(int64_t bytes) {
  if (bytes > arena_.bytes()) {
    arena_ = {};
    TRIREME_ASSIGN_OR_RETURN(arena_, Arena::allocate(bytes));
  }
  return arena_.data();
}

std::vector<int64_t> numCopies(const Segment& segment, int64_t most) {
  // About as many as a layer has: small operands then stay in some cache, large ones do not. Mean
  // error of predicted steps (bench/host_predictions.py) on a Xeon, one round each: 12.7 % with 4
  // copies, 10.6 % with 16. On an EPYC so many that no cache holds even small ones made steps of a
  // small model 20 % too slow.
  constexpr int64_t kFew = 16;
  const std::vector<bool> weights = weightsOf(segment);
  int64_t weightBytes = 0, otherBytes = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    (weights[i] ? weightBytes : otherBytes) += strideOf(segment.operands[i]);
  const int64_t ofWeights = std::max<int64_t>(1, most / 2 / std::max<int64_t>(weightBytes, 1));
  const int64_t left = weightBytes > 0 ? most / 2 : most;
  const int64_t ofOthers = std::clamp<int64_t>(left / std::max<int64_t>(otherBytes, 1), 1, kFew);
  std::vector<int64_t> copies;
  for (bool weight : weights) copies.push_back(weight ? ofWeights : ofOthers);
  return copies;
}

int64_t bytesOfCopies(const Segment& segment, int64_t most) {
  const std::vector<int64_t> counts = numCopies(segment, most);
  int64_t bytes = 0;
  for (size_t i = 0; i < counts.size(); ++i) bytes += counts[i] * strideOf(segment.operands[i]);
  return bytes;
}

Result<Operands> Operands::make(const Segment& segment, int64_t most, OperandMemory& memory) {
  const std::vector<int64_t> counts = numCopies(segment, most);
  TRIREME_ASSIGN_OR_RETURN(char* data, memory.reserve(bytesOfCopies(segment, most)));
  Operands made;
  made.addresses_.resize(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    const Copies copies{data, strideOf(segment.operands[i]), counts[i], 0};
    fillSmall(segment.operands[i], data);
    for (int64_t copy = 1; copy < copies.count; ++copy)
      std::memcpy(data + copy * copies.stride, data, static_cast<size_t>(copies.stride));
    data += copies.count * copies.stride;
    made.copies_.push_back(copies);
  }
  return made;
}

void* const* Operands::next() {
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copies& copies = copies_[i];
    addresses_[i] = copies.first + copies.next * copies.stride;
    copies.next = (copies.next + 1) % copies.count;
  }
  return addresses_.data();
}

void fillSmall(const program::OperandType& type, void* data) {
  constexpr int64_t kIds = 61;
  const Tensor tensor{data, &type};
  for (int64_t i = 0; i < type.elements(); ++i)
    tensor.set(i, type.dtype == DType::kI32 ? static_cast<double>(i % kIds)
                                            : static_cast<double>(i % 17) / 64 - 0.1);
}

}  // namespace trireme::runtime
