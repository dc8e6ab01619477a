// The rules on the values of specs, (M1)... for models and (T1)... for training settings, shared by
// the verifiers and the loaders (which add the place in the file). Keys are those of the YAML form.
#pragma once
#include <optional>

#include "ir/spec/map_reader.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/training_spec.h"

namespace trireme::spec {

inline constexpr int64_t kMaxSize = int64_t{1} << 30;
inline constexpr int64_t kMaxParameters = 1'000'000'000'000'000'000;

// (M1) Sizes are 1 .. 2^30, and so is heads x head_size.
// (M2) kv_heads divides heads.
// (M3) Rotary positions need an even head_size; rope_theta is at least 1, and 10000 (unset) without
// them.
// (M4) norm_epsilon is above 0, init_std at least 0; both finite.
// (M5) The model has at most 10^18 parameters.
// (M6) The name is valid UTF-8 without control characters.
// (M7) rope_scaling goes with rotary positions only; its numbers make sense (ir/base/rope.h).
std::optional<Problem> findProblem(const ModelSpec& model);

// (T1) Sequence length and batch are 0 (not given yet) .. 2^30.
// (T2) Dropout probabilities, beta1 and beta2 are in [0, 1).
// (T3) 0 < learning_rate, 0 <= min_learning_rate <= learning_rate.
// (T4) Step counts are 0 .. 2^53.
// (T5) 0 < epsilon, a normal number of the optimizer's state (else a parameter without gradient
//      divides 0 by 0); 0 <= weight_decay, clip_norm.
// (T6) tf32 needs precision fp32.
// (T7) 2^-126 <= min_loss_scale <= initial_loss_scale <= 2^126 (both and their inverses are normal
//      numbers of f32); loss_scale_window is 1 .. 2^53.
// All numbers are finite.
std::optional<Problem> findProblem(const TrainingSpec& training);

}  // namespace trireme::spec
