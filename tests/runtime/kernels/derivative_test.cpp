// Every backward op of the reference against central differences of its forward op, in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpAttributes;
using program::OpKind;

constexpr DType kF64 = DType::kF64;
constexpr double kStep = 1e-5, kTolerance = 1e-6;

// The kinds that a case has moved the operands of, or compared the gradients of.
std::set<OpKind>& covered() {
  static std::set<OpKind> kinds;
  return kinds;
}

double weigh(const std::vector<double>& y, const std::vector<double>& dy) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

// d(weigh(y, dy)) / d(operand) by running `forward` on either side of every element.
std::vector<double> differences(const OpCase& forward, int operand, int y,
                                const std::vector<double>& dy) {
  covered().insert(forward.kind());
  std::vector<double> result;
  for (size_t i = 0; i < forward.values(operand).size(); ++i) {
    double side[2];
    for (int s = 0; s < 2; ++s) {
      OpCase moved = forward;
      moved.scalar(operand, static_cast<int64_t>(i)) += s == 0 ? kStep : -kStep;
      EXPECT_TRUE(moved.runReference().ok());
      side[s] = weigh(moved.values(y), dy);
    }
    result.push_back((side[0] - side[1]) / (2 * kStep));
  }
  return result;
}

void expectNear(const std::vector<double>& expected, const std::vector<double>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(expected[i], actual[i], kTolerance * std::max(1.0, std::abs(expected[i]))) << i;
}

// What an output gained: accumulating outputs start at random values.
std::vector<double> gained(OpCase backward, int output, bool accumulates) {
  covered().insert(backward.kind());
  const std::vector<double> before = backward.values(output);
  EXPECT_EQ(backward.runReference().message(), "");
  std::vector<double> after = backward.values(output);
  for (size_t i = 0; i < after.size() && accumulates; ++i) after[i] -= before[i];
  return after;
}

std::vector<double> drawn(int64_t count) {
  OpCase source(OpKind::kAdd);
  return source.values(source.input(kF64, {count}));
}

void checkGelu() {
  const std::vector<double> dz = drawn(24);
  OpCase forward(OpKind::kGelu);
  const int u = forward.input(kF64, {3, 2, 4}), z = forward.output(kF64, {3, 2, 4});
  OpCase backward(OpKind::kGeluGrad);
  backward.input(kF64, {3, 2, 4}, forward.values(u));
  backward.input(kF64, {3, 2, 4}, dz);
  const int du = backward.output(kF64, {3, 2, 4});
  expectNear(differences(forward, u, z, dz), gained(backward, du, false));
}

void checkSwiGlu() {
  const std::vector<double> dz = drawn(30);
  OpCase forward(OpKind::kSwiGlu);
  const int u = forward.input(kF64, {3, 2, 2, 5}), z = forward.output(kF64, {3, 2, 5});
  OpCase backward(OpKind::kSwiGluGrad);
  backward.input(kF64, {3, 2, 2, 5}, forward.values(u));
  backward.input(kF64, {3, 2, 5}, dz);
  const int du = backward.output(kF64, {3, 2, 2, 5});
  expectNear(differences(forward, u, z, dz), gained(backward, du, false));
}

void checkMatmul() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpCase forward(OpKind::kMatmul);
  const int x = forward.input(kF64, {3, 2, 5}), w = forward.input(kF64, {4, 5});
  const int y = forward.output(kF64, {3, 2, 4});
  OpCase toInput(OpKind::kMatmulGradInput);
  toInput.input(kF64, {3, 2, 4}, dy);
  toInput.input(kF64, {4, 5}, forward.values(w));
  const int dx = toInput.output(kF64, {3, 2, 5});
  expectNear(differences(forward, x, y, dy), gained(toInput, dx, false));
  OpCase toWeight(OpKind::kMatmulGradWeight);
  toWeight.input(kF64, {3, 2, 4}, dy);
  toWeight.input(kF64, {3, 2, 5}, forward.values(x));
  const int dw = toWeight.output(kF64, {4, 5}, true);
  expectNear(differences(forward, w, y, dy), gained(toWeight, dw, true));
}

void checkEmbedding() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpCase forward(OpKind::kEmbedding);
  const int ids = forward.ids({3, 2}, 5), table = forward.input(kF64, {5, 4});
  const int y = forward.output(kF64, {3, 2, 4});
  OpCase backward(OpKind::kEmbeddingGrad);
  backward.input(DType::kI32, {3, 2}, forward.values(ids));
  backward.input(kF64, {3, 2, 4}, dy);
  const int dTable = backward.output(kF64, {5, 4}, true);
  expectNear(differences(forward, table, y, dy), gained(backward, dTable, true));
}

void checkPosition() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpAttributes sharded;
  sharded.sequenceSharded = true;
  OpCase forward(OpKind::kAddPosition, sharded), backward(OpKind::kPositionGrad, sharded);
  forward.context().tpIndex = backward.context().tpIndex = 1;
  const int x = forward.input(kF64, {3, 2, 4});
  const int position = forward.input(kF64, {8, 4}), y = forward.output(kF64, {3, 2, 4});
  backward.input(kF64, {3, 2, 4}, dy);
  const int dPosition = backward.output(kF64, {8, 4}, true);
  expectNear(differences(forward, position, y, dy), gained(backward, dPosition, true));
  expectNear(differences(forward, x, y, dy), dy);
}

void checkBias() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpCase forward(OpKind::kBiasAdd), backward(OpKind::kBiasGrad);
  const int x = forward.input(kF64, {3, 2, 4});
  const int bias = forward.input(kF64, {4}), y = forward.output(kF64, {3, 2, 4});
  backward.input(kF64, {3, 2, 4}, dy);
  const int dBias = backward.output(kF64, {4}, true);
  expectNear(differences(forward, bias, y, dy), gained(backward, dBias, true));
  expectNear(differences(forward, x, y, dy), dy);
}

// Both terms have the gradient of the sum: the derived backward hands it on (ir/graph).
void checkAdd() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpCase forward(OpKind::kAdd);
  const int x = forward.input(kF64, {3, 2, 4}), y = forward.input(kF64, {3, 2, 4});
  const int sum = forward.output(kF64, {3, 2, 4});
  for (const int term : {x, y}) expectNear(differences(forward, term, sum, dy), dy);
}

void checkDropoutIsItsOwn() {
  const std::vector<double> dy = drawn(3 * 2 * 4);
  OpAttributes attributes;
  attributes.probability = 0.4;
  attributes.stream = RngStream::kMlpOutDropout;
  OpCase forward(OpKind::kDropout, attributes), backward(OpKind::kDropout, attributes);
  const int x = forward.input(kF64, {3, 2, 4}), y = forward.output(kF64, {3, 2, 4});
  backward.input(kF64, {3, 2, 4}, dy);
  const int dx = backward.output(kF64, {3, 2, 4});
  expectNear(differences(forward, x, y, dy), gained(backward, dx, false));
}

// x, gamma, [beta] -> y, [mean], rstd;   x, gamma, [mean], rstd, dy -> dx, dGamma, [dBeta]
void expectNorm(bool layerNorm) {
  OpAttributes attributes;
  attributes.epsilon = 1e-3;
  const std::vector<double> dy = drawn(3 * 2 * 6);
  OpCase forward(layerNorm ? OpKind::kLayerNorm : OpKind::kRmsNorm, attributes);
  std::vector<int> parameters = {forward.input(kF64, {3, 2, 6}), forward.input(kF64, {6})};
  if (layerNorm) parameters.push_back(forward.input(kF64, {6}));
  const int y = forward.output(kF64, {3, 2, 6});
  std::vector<int> stats = {forward.output(kF64, {3, 2})};
  if (layerNorm) stats.push_back(forward.output(kF64, {3, 2}));
  ASSERT_TRUE(forward.runReference().ok());

  OpCase backward(layerNorm ? OpKind::kLayerNormGrad : OpKind::kRmsNormGrad, attributes);
  backward.input(kF64, {3, 2, 6}, forward.values(parameters[0]));
  backward.input(kF64, {6}, forward.values(parameters[1]));
  for (int stat : stats) backward.input(kF64, {3, 2}, forward.values(stat));
  backward.input(kF64, {3, 2, 6}, dy);
  const int dx = backward.output(kF64, {3, 2, 6});
  std::vector<int> gradients = {dx, backward.output(kF64, {6}, true)};
  if (layerNorm) gradients.push_back(backward.output(kF64, {6}, true));
  for (size_t i = 0; i < parameters.size(); ++i)
    expectNear(differences(forward, parameters[i], y, dy), gained(backward, gradients[i], i > 0));
}

void checkLayerNorm() { expectNorm(true); }
void checkRmsNorm() { expectNorm(false); }

OpAttributes headsOf(double probability) {
  OpAttributes attributes;
  attributes.headSize = 4;
  attributes.headsPerGroup = 2;
  attributes.ropeTheta = 100;
  attributes.probability = probability;
  attributes.stream = RngStream::kAttentionDropout;
  return attributes;
}

// Of the two pairs of a head of 4, at theta 100, llama3 blends the first (50 / 2 pi = 8 turns, of 4
// to 16) and divides the second.
void expectRotary(const RopeScaling& scaling) {
  OpAttributes attributes = headsOf(0);
  attributes.sequenceSharded = true;
  attributes.ropeScaling = scaling;
  const std::vector<double> dy = drawn(3 * 2 * 2 * 16);
  OpCase forward(OpKind::kRotary, attributes), backward(OpKind::kRotaryGrad, attributes);
  forward.context().tpIndex = backward.context().tpIndex = 2;
  const int x = forward.input(kF64, {3, 2, 2, 16}), y = forward.output(kF64, {3, 2, 2, 16});
  backward.input(kF64, {3, 2, 2, 16}, dy);
  const int dx = backward.output(kF64, {3, 2, 2, 16});
  expectNear(differences(forward, x, y, dy), gained(backward, dx, false));
}

void checkRotaryIsTheInverseRotation() { expectRotary({}); }
void checkRotaryOfScaledPositions() {
  expectRotary({.kind = RopeScalingKind::kLinear, .factor = 3});
  expectRotary({RopeScalingKind::kLlama3, 8, 4, 16, 50});
}

// Token p of a head of 4 is turned by p f: (1, 0) becomes (cos p f, sin p f), with f = 1 / 2 and
// 1 / 20.
TEST(Reference, RotaryTurnsByTheScaledFrequency) {
  OpAttributes attributes{.headSize = 4, .headsPerGroup = 1, .ropeTheta = 100};
  attributes.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 2};
  OpCase test(OpKind::kRotary, attributes);
  test.input(kF64, {3, 1, 1, 12},
             std::vector<double>{1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1,
                                 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0});
  const int y = test.output(kF64, {3, 1, 1, 12});
  ASSERT_TRUE(test.runReference().ok());
  const std::vector<double> turned = test.values(y);
  for (int p = 0; p < 3; ++p)
    for (int head = 0; head < 3; ++head)
      for (int i = 0; i < 2; ++i) {
        const double angle = head == 2 ? 0 : p / (i == 0 ? 2.0 : 20.0);
        EXPECT_NEAR(turned[static_cast<size_t>(12 * p + 4 * head + i)], std::cos(angle), 1e-15);
        EXPECT_NEAR(turned[static_cast<size_t>(12 * p + 4 * head + 2 + i)], std::sin(angle), 1e-15);
      }
}

TEST(Reference, RotaryRefusesScalingThatMakesNoSense) {
  OpAttributes attributes{.headSize = 4, .headsPerGroup = 1, .ropeTheta = 100};
  attributes.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 0};
  OpCase test(OpKind::kRotary, attributes);
  test.input(kF64, {3, 1, 1, 12});
  test.output(kF64, {3, 1, 1, 12});
  EXPECT_EQ(test.runFast().message(), "rotary: the scaling of rotary positions must make sense");
}

void expectAttention(double probability) {
  const std::vector<int64_t> qkvDims = {5, 2, 2, 16}, ctxDims = {5, 2, 2, 8}, lseDims = {2, 4, 5};
  const std::vector<double> dctx = drawn(5 * 2 * 2 * 8);
  OpCase forward(OpKind::kAttention, headsOf(probability));
  const int qkv = forward.input(kF64, qkvDims);
  const int ctx = forward.output(kF64, ctxDims), lse = forward.output(kF64, lseDims);
  ASSERT_TRUE(forward.runReference().ok());
  OpCase backward(OpKind::kAttentionGrad, headsOf(probability));
  backward.input(kF64, qkvDims, forward.values(qkv));
  backward.input(kF64, ctxDims, forward.values(ctx));
  backward.input(kF64, lseDims, forward.values(lse));
  backward.input(kF64, ctxDims, dctx);
  const int dqkv = backward.output(kF64, qkvDims);
  expectNear(differences(forward, qkv, ctx, dctx), gained(backward, dqkv, false));
}

void checkAttentionWithGroupedQueries() { expectAttention(0); }
void checkAttentionWithDropout() { expectAttention(0.3); }

// The loss goes through three ops; the maximum is a shift that cancels, so it is held fixed.
void checkLoss() {
  OpAttributes attributes;
  attributes.logicalVocab = 6;
  attributes.scale = 0.125;
  const std::vector<double> labels = {0, 5, 2, 2}, max(4, 1.5), logits = drawn(2 * 2 * 7);
  const auto lossOf = [&](const std::vector<double>& x, std::vector<double>* sumExp) {
    OpCase target(OpKind::kLossTarget, attributes), sum(OpKind::kLossSumExp, attributes);
    OpCase loss(OpKind::kTokenLoss);
    covered().insert({OpKind::kLossTarget, OpKind::kLossSumExp, OpKind::kTokenLoss});
    for (OpCase* op : {&target, &sum}) {
      op->input(kF64, {2, 2, 7}, x);
      op->input(kF64, {2, 2}, max);
    }
    target.input(DType::kI32, {2, 2}, labels);
    const int t = target.output(kF64, {2, 2}), s = sum.output(kF64, {2, 2});
    EXPECT_TRUE(target.runReference().ok() && sum.runReference().ok());
    loss.input(kF64, {2, 2}, target.values(t));
    loss.input(kF64, {2, 2}, sum.values(s));
    const int total = loss.output(kF64, {1}, true);
    loss.setValues(total, std::vector<double>{0});
    EXPECT_TRUE(loss.runReference().ok());
    if (sumExp != nullptr) *sumExp = sum.values(s);
    return loss.values(total)[0] * attributes.scale;
  };
  std::vector<double> sumExp, expected;
  lossOf(logits, &sumExp);
  for (size_t i = 0; i < logits.size(); ++i) {
    std::vector<double> up = logits, down = logits;
    up[i] += kStep;
    down[i] -= kStep;
    expected.push_back((lossOf(up, nullptr) - lossOf(down, nullptr)) / (2 * kStep));
  }
  OpCase backward(OpKind::kLossGrad, attributes);
  backward.input(kF64, {2, 2, 7}, logits);
  backward.input(kF64, {2, 2}, max);
  backward.input(kF64, {2, 2}, sumExp);
  backward.input(DType::kI32, {2, 2}, labels);
  const int d = backward.output(kF64, {2, 2, 7});
  expectNear(expected, gained(backward, d, false));
}

// --- The cases, and that they are all there are. ---

struct DerivativeCase {
  const char* name;
  void (*check)();
};

const DerivativeCase kCases[] = {
    {"Gelu", checkGelu},
    {"SwiGlu", checkSwiGlu},
    {"Matmul", checkMatmul},
    {"Embedding", checkEmbedding},
    {"Position", checkPosition},
    {"Bias", checkBias},
    {"Add", checkAdd},
    {"DropoutIsItsOwn", checkDropoutIsItsOwn},
    {"LayerNorm", checkLayerNorm},
    {"RmsNorm", checkRmsNorm},
    {"RotaryIsTheInverseRotation", checkRotaryIsTheInverseRotation},
    {"RotaryOfScaledPositions", checkRotaryOfScaledPositions},
    {"AttentionWithGroupedQueries", checkAttentionWithGroupedQueries},
    {"AttentionWithDropout", checkAttentionWithDropout},
    {"Loss", checkLoss},
};

class Derivative : public ::testing::TestWithParam<DerivativeCase> {};

TEST_P(Derivative, IsThatOfCentralDifferences) { GetParam().check(); }

INSTANTIATE_TEST_SUITE_P(All, Derivative, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Runs them all, and asks for every kind of op there is whether one of them ran it. The maximum of
// the logits alone has no derivative of its own.
TEST(Derivatives, OfEveryOpAreChecked) {
  covered().clear();
  for (const DerivativeCase& test : kCases) test.check();
  for (int kind = 0; kind < program::kNumOpKinds; ++kind) {
    const auto op = static_cast<OpKind>(kind);
    EXPECT_EQ(covered().contains(op), op != OpKind::kLossMax) << program::opName(op);
  }
}

}  // namespace
}  // namespace trireme::runtime::testing
