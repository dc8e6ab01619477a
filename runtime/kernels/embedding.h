// Lookup in a table of rows, and its gradient.
#pragma once
#include "runtime/kernels/operands.h"

namespace trireme::runtime {

// kEmbedding: table and output of one type. kEmbeddingGrad: f64 into f64, f32 or bf16 into f32.
bool isFastEmbedding(const KernelCallArgs& args);
// Parallel over tokens.
void fastEmbedding(const KernelCallArgs& args);
// Parallel over columns: each row of the table is added to in the order of the tokens.
void fastEmbeddingGrad(const KernelCallArgs& args);

}  // namespace trireme::runtime
