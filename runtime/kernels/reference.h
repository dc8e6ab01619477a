// The families of the reference (kernels.h, runReferenceOp). Operands are checked before.
#pragma once
#include "runtime/kernels/operands.h"

namespace trireme::runtime::reference {

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
