// The matrix products of a linear layer, y = x w^T, on tokens: rows are s b, columns the rest.
#pragma once
#include "runtime/kernels/operands.h"

namespace trireme::runtime {

// True if the fast kernels take the operands' types: all f64; all f32; or bf16 with a product in
// bf16 (kMatmul, kMatmulGradInput) or accumulated in f32 (kMatmulGradWeight).
bool isFastMatmul(const KernelCallArgs& args);

// The three ops, by args.op->kind. Requires isFastMatmul().
void fastMatmul(const KernelCallArgs& args);

}  // namespace trireme::runtime
