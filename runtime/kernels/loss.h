// The passes over the logits of the vocabulary-parallel cross entropy.
#pragma once
#include "runtime/kernels/operands.h"

namespace trireme::runtime {

// kLossMax, kLossSumExp and kLossGrad on logits (and their gradient) in f32, bf16 or f16. Parallel
// over tokens.
bool isFastLoss(const KernelCallArgs& args);
void fastLossMax(const KernelCallArgs& args);
void fastLossSumExp(const KernelCallArgs& args);
void fastLossGrad(const KernelCallArgs& args);

}  // namespace trireme::runtime
