// The families of the reference (kernels.h, runReferenceOp). Operands are checked before.
#pragma once
#include <algorithm>
#include <cstdint>

#include "runtime/kernels/operands.h"

namespace trireme::runtime::reference {

// The sum of term(token) over the tokens of a column, in the order of program::sumRangeTokens().
template <typename F>
double sumOverTokens(int64_t tokens, F term) {
  const int64_t range = program::sumRangeTokens(tokens);
  double total = 0;
  for (int64_t first = 0; first < tokens; first += range) {
    double sum = 0;
    for (int64_t token = first; token < std::min(first + range, tokens); ++token)
      sum += term(token);
    total += sum;
  }
  return total;
}

void embedding(const KernelCallArgs& args);
void embeddingGrad(const KernelCallArgs& args);
void addPosition(const KernelCallArgs& args);
void positionGrad(const KernelCallArgs& args);

void layerNorm(const KernelCallArgs& args);
void layerNormGrad(const KernelCallArgs& args);
void rmsNorm(const KernelCallArgs& args);
void rmsNormGrad(const KernelCallArgs& args);

void dropout(const KernelCallArgs& args);
void add(const KernelCallArgs& args);
void biasAdd(const KernelCallArgs& args);
void biasGrad(const KernelCallArgs& args);
void gelu(const KernelCallArgs& args);
void geluGrad(const KernelCallArgs& args);
void swiGlu(const KernelCallArgs& args);
void swiGluGrad(const KernelCallArgs& args);

void matmul(const KernelCallArgs& args);
void matmulGradInput(const KernelCallArgs& args);
void matmulGradWeight(const KernelCallArgs& args);

// `direction` is +1 for the rotation, -1 for its inverse.
void rotary(const KernelCallArgs& args, int direction);
void attention(const KernelCallArgs& args);
void attentionGrad(const KernelCallArgs& args);

void lossMax(const KernelCallArgs& args);
void lossTarget(const KernelCallArgs& args);
void lossSumExp(const KernelCallArgs& args);
void tokenLoss(const KernelCallArgs& args);
void lossGrad(const KernelCallArgs& args);

}  // namespace trireme::runtime::reference
