// A stack where it is used: what its profile says holds of training in 16 bits on the GPUs that its
// kernels were written for, and less is to be had elsewhere.
#pragma once
#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"
#include "ir/spec/training_spec.h"

namespace trireme::spec {

// Of bf16: gradients have what `bf16GradientBytes` says. Of fp32: weights, gradients and what is
// exchanged take 4 bytes, and masters are the weights themselves. Fused attention needs 16 bits
// and, of NVIDIA's GPUs, compute capability 8.0 (FlashAttention 2's README; the backends of
// Transformer Engine's DotProductAttention), Megatron's fused softmax 16 bits (its
// FusedScaleMaskSoftmax): elsewhere it is `attentionElsewhere`. Transformer Engine prefers cuDNN's
// kernel from 9.0 on and FlashAttention 2 before (get_attention_backend of its
// dot_product_attention/utils.py, v1 and v2). The same again where it has been applied.
StackDescription descriptionOn(const StackDescription& stack, Precision precision,
                               const DeviceSpec& device);

// The same of a profile. Without fused attention there is no context parallelism, which exchanges
// blocks of it. Own programs stay as they are.
StackProfile stackOn(StackProfile stack, Precision precision, const DeviceSpec& device);

// kInvalidArgument: the device is known to be older than what the stack needs.
Status checkDevice(const StackProfile& stack, const DeviceSpec& device);

}  // namespace trireme::spec
