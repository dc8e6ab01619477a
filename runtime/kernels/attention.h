// Causal attention in blocks, with grouped queries and dropout: no sequence x sequence tensor.
//
// Dao, Fu, Ermon, Rudra, Re, "FlashAttention", NeurIPS 2022: per block of queries, keys are visited
// in order, and the running maximum and sum rescale what was summed before. Backward recomputes the
// probabilities from lse. Equations: reference_attention.cpp.
#pragma once
#include "runtime/kernels/operands.h"

namespace trireme::runtime {

// True if all activations have one type, f64, f32, bf16 or f16.
bool isFastAttention(const KernelCallArgs& args);

// kAttention and kAttentionGrad. Require isFastAttention(). Forward is parallel over batch and
// heads, backward over batch and groups: the heads of a group add to the same dk and dv, in order.
void fastAttention(const KernelCallArgs& args);
void fastAttentionGrad(const KernelCallArgs& args);

}  // namespace trireme::runtime
