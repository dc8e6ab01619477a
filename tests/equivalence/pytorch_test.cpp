// Loss and gradients against PyTorch in fp64 (pytorch/make_goldens.py made pytorch/goldens.json).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/equivalence/harness.h"

namespace trireme::equivalence {
namespace {

// fp64 against fp64, other summation orders: a few hundred roundings of 1e-16.
constexpr double kRelative = 1e-11;

class GoldenData : public runtime::DataSource {
 public:
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    const auto token = [&](int64_t i) {
      return static_cast<int32_t>((7 * i * i + 3 * static_cast<int64_t>(index) + i) % 29);
    };
    for (int64_t i = 0; i < length; ++i) {
      if (tokens != nullptr) tokens[i * stride] = token(i);
      if (labels != nullptr) labels[i * stride] = token(i + 1);
    }
    return {};
  }
};

enum class Golden { kGpt, kLlama, kScaledLlama };

spec::ModelSpec goldenModel(Golden golden) {
  const bool llama = golden != Golden::kGpt;
  spec::ModelSpec m = llama ? tinyLlama(2) : tinyGpt(2);
  m.hiddenSize = 16;
  m.numHeads = 4;
  m.numKvHeads = llama ? 2 : 4;
  m.headSize = 4;
  m.ffnSize = llama ? 40 : 64;
  m.vocabSize = 29;
  m.maxSequence = 8;
  if (golden != Golden::kScaledLlama) return m;
  m.headSize = 8;
  m.ropeScaling = {RopeScalingKind::kLlama3, 8, 0.5, 4, 64};
  return m;
}

const char* nameOf(Golden golden) {
  return golden == Golden::kGpt ? "gpt" : golden == Golden::kLlama ? "llama" : "scaled-llama";
}

void compareWithGolden(Golden which, int64_t tp) {
  std::ifstream file(TRIREME_SOURCE_DIR "/tests/equivalence/pytorch/goldens.json");
  const auto golden = nlohmann::json::parse(file)[nameOf(which)];
  const spec::ModelSpec model = goldenModel(which);
  spec::TrainingSpec training;
  training.precision = spec::Precision::kFp64;
  training.sequenceLength = 8;
  training.globalBatchSize = 4;
  plan::Plan plan = serialPlan(model, training, 2);
  plan.tp = tp;
  GoldenData data;
  RunOptions options;
  options.steps = 1;
  options.data = &data;
  const auto result = run(model, plan, options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_NEAR(result->losses[0], golden["loss"].get<double>(), 1e-13);
  ASSERT_EQ(result->firstGradients.size(), golden["gradients"].size());
  for (const auto& tensor : result->firstGradients) {
    ASSERT_TRUE(golden["gradients"].contains(tensor.name)) << tensor.name;
    const auto& expected = golden["gradients"][tensor.name];
    double squares = 0, dot = 0;
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      squares += tensor.values[i] * tensor.values[i];
      dot += tensor.values[i] * std::cos(static_cast<double>(i) * 0.7);
    }
    const double norm = expected["norm"];
    EXPECT_NEAR(std::sqrt(squares), norm, kRelative * norm) << tensor.name;
    EXPECT_NEAR(dot, expected["dot"].get<double>(), kRelative * norm) << tensor.name;
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(tensor.values[i], expected["first"][i].get<double>(), kRelative * norm)
          << tensor.name;
  }
}

TEST(PyTorch, GptHasTheSameLossAndGradients) { compareWithGolden(Golden::kGpt, 1); }
TEST(PyTorch, LlamaHasTheSameLossAndGradients) { compareWithGolden(Golden::kLlama, 1); }
TEST(PyTorch, ScaledLlamaHasTheSameLossAndGradients) { compareWithGolden(Golden::kScaledLlama, 1); }
TEST(PyTorch, TensorParallelGptHasTheSameLossAndGradients) { compareWithGolden(Golden::kGpt, 2); }
TEST(PyTorch, TensorParallelLlamaHasTheSameLossAndGradients) {
  compareWithGolden(Golden::kLlama, 2);
}
TEST(PyTorch, TensorParallelScaledLlamaHasTheSameLossAndGradients) {
  compareWithGolden(Golden::kScaledLlama, 2);
}

}  // namespace
}  // namespace trireme::equivalence
