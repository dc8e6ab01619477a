// The operands of one kernel call, named and checked.
#pragma once
#include <cstdint>

#include "ir/base/rng.h"
#include "ir/base/status.h"
#include "ir/program/op.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/kernels.h"

namespace trireme::runtime {

// A tensor seen as [rows, width]: rows are the tokens (the first two dims of an activation), or the
// first dim of a matrix; see rowsOf() and width().
struct Tensor {
  void* data = nullptr;
  const program::OperandType* type = nullptr;

  DType dtype() const { return type->dtype; }
  int64_t dim(size_t i) const { return type->dims[i]; }
  int64_t elements() const { return type->elements(); }
  int64_t tokens() const { return dim(0) * dim(1); }       // of [s, b, ...]
  int64_t width() const { return elements() / tokens(); }  // of [s, b, ...]

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }

  // Element access through double, for the reference.
  double at(int64_t i) const {
    switch (type->dtype) {
      case DType::kF64:
        return as<double>()[i];
      case DType::kF32:
        return as<float>()[i];
      case DType::kBf16:
        return toFloat(as<Bf16>()[i]);
      case DType::kF16:
        return toFloat(as<F16>()[i]);
      default:
        return as<int32_t>()[i];
    }
  }
  void set(int64_t i, double value) const {
    switch (type->dtype) {
      case DType::kF64:
        as<double>()[i] = value;
        break;
      case DType::kF32:
        as<float>()[i] = static_cast<float>(value);
        break;
      case DType::kBf16:
        as<Bf16>()[i] = toBf16(value);
        break;
      case DType::kF16:
        as<F16>()[i] = toF16(value);
        break;
      default:
        as<int32_t>()[i] = static_cast<int32_t>(value);
        break;
    }
  }
  void add(int64_t i, double value) const { set(i, at(i) + value); }
};

inline Tensor inputOf(const KernelCallArgs& args, size_t i) {
  const int32_t operand = args.op->inputs[i];
  return {args.operands[operand], &args.types[operand]};
}
inline Tensor outputOf(const KernelCallArgs& args, size_t i) {
  const int32_t operand = args.op->outputs[i];
  return {args.operands[operand], &args.types[operand]};
}

// First global position of a local [s, ...] tensor, and first global row or group of a tensor that
// is split over its width.
inline int64_t firstPosition(const KernelCallArgs& args, int64_t localSequence) {
  const bool sharded = args.op->attributes.sequenceSharded;
  return sharded ? static_cast<int64_t>(args.context->tpIndex) * localSequence : 0;
}
inline int64_t firstOfWidth(const KernelCallArgs& args, int64_t localWidth) {
  const bool sharded = args.op->attributes.widthSharded;
  return sharded ? static_cast<int64_t>(args.context->tpIndex) * localWidth : 0;
}
// kLossGrad: of its attributes, times the loss scale if there is one.
inline double lossGradScale(const KernelCallArgs& args) {
  return args.op->attributes.scale * (args.lossScaling ? args.lossScaling->scale : 1);
}
inline RngKey rngKeyOf(const KernelCallArgs& args) {
  return args.context->keys[static_cast<int>(args.op->attributes.stream)];
}

// Logical (unpadded) columns among the `localVocab` columns of this shard.
int64_t localLogicalColumns(const KernelCallArgs& args, int64_t localVocab);

// Shapes of the fused attention tensors.
struct AttentionShape {
  int64_t sequence, batch, groups, headsPerGroup, headSize;
  int64_t qkvWidth() const { return (headsPerGroup + 2) * headSize; }  // e
  int64_t ctxWidth() const { return headsPerGroup * headSize; }        // c
};
AttentionShape attentionShapeOf(const program::OpAttributes& attributes, const Tensor& qkv);

// kInvalidArgument, naming the op and the rule, if operands do not fit the op (ir/program/op.h).
Status checkOperands(const KernelCallArgs& args);

}  // namespace trireme::runtime
