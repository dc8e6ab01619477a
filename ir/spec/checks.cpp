#include "ir/spec/checks.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace trireme::spec {
namespace {

// Keeps the first problem of a list of rules.
struct Rules {
  std::optional<Problem> problem;

  // The message is put together where it is needed: every plan of a search is verified.
  template <typename... Args>
  void require(bool holds, std::string_view key, fmt::format_string<const Args&...> message,
               const Args&... args) {
    if (!holds && !problem) problem = Problem{std::string(key), fmt::format(message, args...)};
  }
  void range(std::string_view key, int64_t value, int64_t low, int64_t high) {
    require(value >= low && value <= high, key, "must be {} to {}, got {}", low, high, value);
  }
  void probability(std::string_view key, double value) {
    require(value >= 0 && value < 1, key, "must be at least 0 and below 1, got {}", value);
  }
  void positive(std::string_view key, double value) {
    require(std::isfinite(value) && value > 0, key, "must be above 0, got {}", value);
  }
  void notNegative(std::string_view key, double value) {
    require(std::isfinite(value) && value >= 0, key, "must not be negative, got {}", value);
  }
};

bool isPrintable(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  return isValidUtf8(text);
}

// In double, which does not overflow; matrices and embeddings only. What it leaves out and what it
// rounds is far below the distance from the limit to the end of int64_t.
double parametersEstimate(const ModelSpec& m) {
  const double heads =
      static_cast<double>(m.numHeads + m.numKvHeads) * static_cast<double>(m.headSize);
  const double layer = 2.0 * static_cast<double>(m.hiddenSize) * heads +
                       3.0 * static_cast<double>(m.hiddenSize) * static_cast<double>(m.ffnSize);
  const double rows = 2.0 * static_cast<double>(m.vocabSize) + static_cast<double>(m.maxSequence);
  return static_cast<double>(m.numLayers) * layer + rows * static_cast<double>(m.hiddenSize);
}

}  // namespace

std::optional<Problem> findProblem(const ModelSpec& m) {
  constexpr int64_t kMaxHeadSize = int64_t{1} << 16;  // and heads of one group
  Rules rules;
  rules.require(isPrintable(m.name), "name", "must be text without control characters");  // (M6)
  rules.range("layers", m.numLayers, 1, kMaxSize);                                        // (M1)
  rules.range("hidden_size", m.hiddenSize, 1, kMaxSize);
  rules.range("heads", m.numHeads, 1, kMaxSize);
  rules.range("kv_heads", m.numKvHeads, 1, kMaxSize);
  rules.range("head_size", m.headSize, 1, kMaxSize);
  rules.range("ffn_size", m.ffnSize, 1, kMaxSize);
  rules.range("vocab_size", m.vocabSize, 1, kMaxSize);
  rules.range("max_sequence", m.maxSequence, 1, kMaxSize);
  if (rules.problem) return rules.problem;
  rules.require(m.numHeads * m.headSize <= kMaxSize, "heads",
                "heads x head_size must be at most {}", kMaxSize);
  rules.require(m.headSize <= kMaxHeadSize, "head_size", "must be at most {}, got {}", kMaxHeadSize,
                m.headSize);
  rules.require(m.numHeads % m.numKvHeads == 0, "kv_heads",  // (M2)
                "must divide heads ({}), got {}", m.numHeads, m.numKvHeads);
  rules.require(m.numHeads / m.numKvHeads <= kMaxHeadSize, "kv_heads",
                "must be at least one in {} of the heads ({}), got {}", kMaxHeadSize, m.numHeads,
                m.numKvHeads);
  if (m.position == PositionKind::kRotary) {  // (M3)
    rules.require(m.headSize % 2 == 0, "head_size", "must be even with rotary positions, got {}",
                  m.headSize);
    rules.require(std::isfinite(m.ropeTheta) && m.ropeTheta >= 1, "rope_theta",
                  "must be at least 1, got {}", m.ropeTheta);
    if (const auto problem = findProblem(m.ropeScaling))  // (M7)
      rules.require(false, fmt::format("rope_scaling.{}", problem->key), "{}", problem->message);
  } else {
    rules.require(m.ropeTheta == ModelSpec{}.ropeTheta, "rope_theta",
                  "has no effect with learned positions: remove it");
    rules.require(m.ropeScaling == RopeScaling{}, "rope_scaling",  // (M7)
                  "has no effect with learned positions: remove it");
  }
  rules.positive("norm_epsilon", m.normEpsilon);  // (M4)
  rules.notNegative("init_std", m.initStd);
  rules.require(parametersEstimate(m) <= static_cast<double>(kMaxParameters), "layers",  // (M5)
                "the model has more than 10^18 parameters");
  return rules.problem;
}

std::optional<Problem> findProblem(const TrainingSpec& t) {
  constexpr int64_t kMaxSteps = int64_t{1} << 53;
  constexpr double kMaxLossScale = 0x1p126;  // of f32, with the gradient of a loss of 1
  Rules rules;
  rules.range("sequence_length", t.sequenceLength, 0, kMaxSize);  // (T1)
  rules.range("global_batch_size", t.globalBatchSize, 0, kMaxSize);
  rules.probability("embedding_dropout", t.embeddingDropout);  // (T2)
  rules.probability("attention_dropout", t.attentionDropout);
  rules.probability("residual_dropout", t.residualDropout);
  rules.probability("beta1", t.beta1);
  rules.probability("beta2", t.beta2);
  rules.positive("learning_rate", t.learningRate);  // (T3)
  rules.notNegative("min_learning_rate", t.minLearningRate);
  rules.require(t.minLearningRate <= t.learningRate, "min_learning_rate",
                "must not exceed learning_rate ({}), got {}", t.learningRate, t.minLearningRate);
  rules.range("warmup_steps", t.warmupSteps, 0, kMaxSteps);  // (T4)
  rules.range("decay_steps", t.decaySteps, 0, kMaxSteps);
  const bool inF64 = stateDType(t.precision) == DType::kF64;
  using F32 = std::numeric_limits<float>;
  using F64 = std::numeric_limits<double>;
  rules.positive("epsilon", t.epsilon);  // (T5)
  rules.require(
      inF64 ? t.epsilon >= F64::min() : t.epsilon >= F32::min() && t.epsilon <= F32::max(),
      "epsilon",
      "must be {:.8g} to {:.8g}, the normal numbers of the optimizer's state ({}), got {}",
      inF64 ? F64::min() : F32::min(), inF64 ? F64::max() : F32::max(),
      dtypeName(stateDType(t.precision)), t.epsilon);
  rules.notNegative("weight_decay", t.weightDecay);
  rules.notNegative("clip_norm", t.clipNorm);
  rules.require(!t.tf32 || t.precision == Precision::kFp32, "tf32",  // (T6)
                "rounds factors in fp32: it needs precision fp32");
  rules.positive("min_loss_scale", t.minLossScale);  // (T7)
  rules.require(t.minLossScale >= F32::min(), "min_loss_scale",
                "must be at least {:.8g}, the least normal number of f32, got {}", F32::min(),
                t.minLossScale);
  rules.require(t.initialLossScale >= t.minLossScale && t.initialLossScale <= kMaxLossScale,
                "initial_loss_scale", "must be min_loss_scale ({}) to 2^126, got {}",
                t.minLossScale, t.initialLossScale);
  rules.range("loss_scale_window", t.lossScaleWindow, 1, kMaxSteps);
  return rules.problem;
}

}  // namespace trireme::spec
