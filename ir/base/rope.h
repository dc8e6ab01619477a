// Rotary position embedding: by what angle each pair of a head turns per position.
//
//   f = theta^(-2 i / headSize)      pair i in [0, headSize / 2); at position p it is turned by p f
//
// A model that was first trained on shorter sequences scales f:
//
//   linear    f / factor
//   llama3    f t + (1 - t) f / factor
//             t = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor), clamped to [0, 1]
//             turns = originalSequence f / (2 pi): of this pair within the original sequence
//
// So llama3 leaves pairs alone that turn often, divides f of those that turn seldom, and goes over
// from one to the other in between. Both are those of Hugging Face transformers
// (modeling_rope_utils.py: _compute_linear_scaling_rope_parameters, _compute_llama3_parameters).
// linear: Chen et al., "Extending Context Window of Large Language Models via Positional
// Interpolation", 2023. llama3: Llama 3.1 and later, apply_scaling() of meta-llama/llama-models,
// models/llama3/model.py.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

enum class RopeScalingKind : uint8_t { kNone, kLinear, kLlama3 };
inline constexpr int kNumRopeScalingKinds = 3;

// Numbers that a kind does not use stay at their defaults, so that equal scalings compare equal.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  double lowFreqFactor = 0;  // turns within the original sequence
  double highFreqFactor = 0;
  int64_t originalSequence = 0;  // tokens
  bool operator==(const RopeScaling&) const = default;
};

// The scaled frequency. GPU kernels call it as well: nothing but arithmetic.
constexpr double scaledFrequency(const RopeScaling& scaling, double frequency) {
  if (scaling.kind == RopeScalingKind::kNone) return frequency;
  const double divided = frequency / scaling.factor;
  if (scaling.kind == RopeScalingKind::kLinear) return divided;
  constexpr double kTwoPi = 6.283185307179586;
  const double turns = static_cast<double>(scaling.originalSequence) * frequency / kTwoPi;
  const double t =
      (turns - scaling.lowFreqFactor) / (scaling.highFreqFactor - scaling.lowFreqFactor);
  if (t <= 0) return divided;
  return t >= 1 ? frequency : t * frequency + (1 - t) * divided;
}

// The scaled frequency of pair i.
double ropeFrequency(double theta, const RopeScaling& scaling, int64_t headSize, int64_t i);

std::string_view ropeScalingName(RopeScalingKind kind);  // "none", "linear", "llama3"
std::optional<RopeScalingKind> parseRopeScalingKind(std::string_view name);

// "{type: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4,
// original_max_position_embeddings: 8192}": a map of YAML, with the keys of Hugging Face. "none".
std::string ropeScalingText(const RopeScaling& scaling);

// What makes no sense: the key (as above) of the number to change, and why.
struct RopeScalingProblem {
  std::string_view key;
  std::string message;
};
// factor is at least 1; of llama3, 0 < low_freq_factor < high_freq_factor, and
// original_max_position_embeddings is 1 .. 2^30; all finite; what the kind does not use is unset.
std::optional<RopeScalingProblem> findProblem(const RopeScaling& scaling);

}  // namespace trireme
