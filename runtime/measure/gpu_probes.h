// The kernels that a calibration times on GPUs: matrix products and attention, of the sizes of
// layers' ranks. The other ops are bound by memory there.
#pragma once
#include <cstdint>
#include <variant>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/units.h"
#include "ir/program/op.h"

namespace trireme::runtime {

// y[tokens, outputs] = x[tokens, inputs] w[outputs, inputs]^T, and the derivatives by x and by w.
struct ProductShape {
  int64_t tokens = 0, outputs = 0, inputs = 0;
  bool operator==(const ProductShape&) const = default;
};

// Causal. headsPerGroup divides heads.
struct AttentionSizes {
  int64_t sequence = 0, batch = 0, heads = 0, headSize = 0;
  double dropout = 0;         // probability
  int64_t headsPerGroup = 1;  // queries that share keys and values
  bool operator==(const AttentionSizes&) const = default;
};

// One call of `op`. A product's shape for kMatmul, kMatmulGradInput and kMatmulGradWeight,
// attention's for kAttention and kAttentionGrad; of f64, f32, bf16 or f16.
struct GpuProbe {
  program::OpKind op = program::OpKind::kMatmul;
  DType type = DType::kF32;
  std::variant<ProductShape, AttentionSizes> shape;
  bool tf32 = false;  // a product of f32, whose factors are rounded
  bool operator==(const GpuProbe&) const = default;
};

// Of that op alone. Weights' gradients and the statistics of attention are in f32, of f64 in f64.
program::Segment segmentOf(const GpuProbe& probe);

// What is multiplied: f64, f32, tf32, bf16 or f16.
MathFormat formatOf(const GpuProbe& probe);
// Of the operands of such products. `format`: one of those.
DType operandType(MathFormat format);

// What is measured: products and attention; in tf32 products, for attention is in f32 there. Probes
// whose operands take more than `most` are left out.
std::vector<GpuProbe> gpuProbes(MathFormat format, Bytes most);

}  // namespace trireme::runtime
