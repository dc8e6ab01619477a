// How attention is computed on a GPU.
#pragma once
#include <cstdint>

namespace trireme::spec {

enum class AttentionKind : uint8_t {
  kUnfused,       // batched products; mask and softmax one by one on the s x s tensors
  kFusedSoftmax,  // batched products; one kernel for scale, mask and softmax
  kFlash,         // one kernel, no s x s tensor in memory: Dao et al. 2022, and Triton's
  kFlash2,        // Dao 2023
  kCudnn,         // cuDNN's fused kernel, as Transformer Engine calls it
};

constexpr bool isFlash(AttentionKind kind) { return kind >= AttentionKind::kFlash; }

}  // namespace trireme::spec
