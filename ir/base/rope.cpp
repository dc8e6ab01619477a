#include "ir/base/rope.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace trireme {
namespace {

constexpr std::array<std::string_view, kNumRopeScalingKinds> kKindNames = {"none", "linear",
                                                                           "llama3"};
constexpr int64_t kMaxSequence = int64_t{1} << 30;

constexpr std::string_view kFactor = "factor", kLow = "low_freq_factor", kHigh = "high_freq_factor",
                           kOriginal = "original_max_position_embeddings";

}  // namespace

double ropeFrequency(double theta, const RopeScaling& scaling, int64_t headSize, int64_t i) {
  const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(headSize);
  return scaledFrequency(scaling, std::pow(theta, exponent));
}

std::string_view ropeScalingName(RopeScalingKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<RopeScalingKind> parseRopeScalingKind(std::string_view name) {
  for (size_t i = 0; i < kKindNames.size(); ++i)
    if (kKindNames[i] == name) return static_cast<RopeScalingKind>(i);
  return std::nullopt;
}

std::string ropeScalingText(const RopeScaling& s) {
  if (s.kind == RopeScalingKind::kNone) return "none";
  std::string text = fmt::format("{{type: {}, {}: {}", ropeScalingName(s.kind), kFactor, s.factor);
  if (s.kind == RopeScalingKind::kLlama3)
    text += fmt::format(", {}: {}, {}: {}, {}: {}", kLow, s.lowFreqFactor, kHigh, s.highFreqFactor,
                        kOriginal, s.originalSequence);
  return text + "}";
}

std::optional<RopeScalingProblem> findProblem(const RopeScaling& s) {
  const auto problem = [](std::string_view key, const char* rule, auto value) {
    return RopeScalingProblem{key, fmt::format("must be {}, got {}", rule, value)};
  };
  const RopeScaling none;
  if (s.kind == RopeScalingKind::kNone ? s.factor != none.factor
                                       : !std::isfinite(s.factor) || s.factor < 1)
    return problem(kFactor, s.kind == RopeScalingKind::kNone ? "1 without scaling" : "at least 1",
                   s.factor);
  if (s.kind != RopeScalingKind::kLlama3) {
    if (s.lowFreqFactor != none.lowFreqFactor)
      return problem(kLow, "unset but for llama3", s.lowFreqFactor);
    if (s.highFreqFactor != none.highFreqFactor)
      return problem(kHigh, "unset but for llama3", s.highFreqFactor);
    if (s.originalSequence != none.originalSequence)
      return problem(kOriginal, "unset but for llama3", s.originalSequence);
    return std::nullopt;
  }
  if (!std::isfinite(s.lowFreqFactor) || s.lowFreqFactor <= 0)
    return problem(kLow, "above 0", s.lowFreqFactor);
  if (!std::isfinite(s.highFreqFactor) || s.highFreqFactor <= s.lowFreqFactor)
    return RopeScalingProblem{kHigh, fmt::format("must be above low_freq_factor ({}), got {}",
                                                 s.lowFreqFactor, s.highFreqFactor)};
  if (s.originalSequence < 1 || s.originalSequence > kMaxSequence)
    return problem(kOriginal, "1 to 1073741824", s.originalSequence);
  return std::nullopt;
}

}  // namespace trireme
