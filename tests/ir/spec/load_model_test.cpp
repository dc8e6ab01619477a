#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* kGpt =
    "name: tiny\n"
    "family: gpt\n"
    "layers: 2\n"
    "hidden_size: 8\n"
    "heads: 2\n"
    "ffn_size: 32\n"
    "vocab_size: 50\n"
    "max_sequence: 16\n";

const char* kLlama =
    "family: llama\n"
    "layers: 2\n"
    "hidden_size: 8\n"
    "heads: 4\n"
    "kv_heads: 2\n"
    "ffn_size: 24\n"
    "vocab_size: 50\n"
    "max_sequence: 16\n"
    "norm_epsilon: 1e-6\n"
    "rope_theta: 500000\n"
    "tied_embeddings: false\n"
    "qkv_bias: false\n";

Result<ModelSpec> modelFrom(const std::string& text) { return parseModel(text, "m.yaml"); }
std::string gptWith(const std::string& from, const std::string& to) {
  return messageOf(modelFrom(replaced(kGpt, from, to)));
}

TEST(VerifyModel, HeadsHaveALimit) {
  ModelSpec model = *parseModel(
      "family: gpt\nlayers: 2\nhidden_size: 4194304\nheads: 32\nffn_size: 64\nvocab_size: 64\n"
      "max_sequence: 64\nhead_size: 65536\n",
      "m.yaml");
  EXPECT_TRUE(verifyModel(model).ok()) << verifyModel(model).message();
  model.headSize *= 2;
  EXPECT_THAT(verifyModel(model).message(), HasSubstr("head_size: must be at most 65536"));
  model.headSize = 2;
  model.numHeads = 1 << 17;
  model.numKvHeads = 1;
  EXPECT_THAT(verifyModel(model).message(), HasSubstr("kv_heads: must be at least one in 65536"));
}

TEST(ParseModel, FamilyGptStandsForGpt2) {
  const ModelSpec m = modelFrom(kGpt).value();
  EXPECT_EQ(m.name, "tiny");
  EXPECT_EQ(m.numKvHeads, 2);
  EXPECT_EQ(m.headSize, 4);
  EXPECT_EQ(m.norm, NormKind::kLayerNorm);
  EXPECT_EQ(m.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(m.position, PositionKind::kLearned);
  EXPECT_TRUE(m.tiedEmbeddings && m.qkvBias && m.linearBias);
}

TEST(ParseModel, FamilyLlamaStandsForRmsNormSwiGluAndRotary) {
  const ModelSpec m = modelFrom(kLlama).value();
  EXPECT_EQ(m.norm, NormKind::kRmsNorm);
  EXPECT_EQ(m.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(m.position, PositionKind::kRotary);
  EXPECT_EQ(m.ropeTheta, 500000);
  EXPECT_EQ(m.numKvHeads, 2);
  EXPECT_FALSE(m.linearBias);
}

TEST(ParseModel, LlamaMustSayWhatItsDescendantsDoDifferently) {
  for (const char* line : {"norm_epsilon: 1e-6\n", "rope_theta: 500000\n",
                           "tied_embeddings: false\n", "qkv_bias: false\n"}) {
    const std::string key(line, std::string(line).find(':'));
    EXPECT_EQ(messageOf(modelFrom(replaced(kLlama, line, ""))), "m.yaml:1:1: " + key + ": missing");
  }
}

TEST(ParseModel, AllMissingKeysAreListedAtOnce) {
  EXPECT_EQ(messageOf(modelFrom("family: llama\nlayers: 2\nhidden_size: 8\nheads: 2\n")),
            "m.yaml:1:1: ffn_size, vocab_size, max_sequence, norm_epsilon, rope_theta, "
            "tied_embeddings, qkv_bias: missing");
}

TEST(ParseModel, NamesTheNearestKey) {
  EXPECT_EQ(gptWith("layers", "layres"),
            "m.yaml:3:1: unknown key 'layres'; did you mean 'layers'?");
  EXPECT_EQ(gptWith("hidden_size", "hiden_size"),
            "m.yaml:4:1: unknown key 'hiden_size'; did you mean 'hidden_size'?");
}

TEST(ParseModel, ListsTheKeysIfNoneIsNear) {
  EXPECT_THAT(gptWith("layers", "xyzzyxyzzy"),
              HasSubstr("unknown key 'xyzzyxyzzy'; valid: family, name, layers, hidden_size"));
}

TEST(ParseModel, SaysWhatIsMissing) {
  EXPECT_EQ(gptWith("vocab_size: 50\n", ""), "m.yaml:1:1: vocab_size: missing");
}

TEST(ParseModel, SaysWhichTypeWasExpected) {
  EXPECT_EQ(gptWith("layers: 2", "layers: two"),
            "m.yaml:3:9: layers: expected a whole number, got 'two'");
  EXPECT_EQ(gptWith("layers: 2", "layers: 2.5"),
            "m.yaml:3:9: layers: expected a whole number, got '2.5'");
  EXPECT_EQ(gptWith("layers: 2", "layers: '2'"),
            "m.yaml:3:9: layers: expected a whole number, got '2' (text in quotes)");
  EXPECT_EQ(gptWith("layers: 2", "layers: [2]"),
            "m.yaml:3:9: layers: expected a whole number, got a list");
  EXPECT_EQ(gptWith("layers: 2", "layers:"),
            "m.yaml:3:1: layers: expected a whole number, got nothing");
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "qkv_bias: yes\n")),
            "m.yaml:9:11: qkv_bias: expected true or false, got 'yes'");
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "init_std: .nan\n")),
            "m.yaml:9:11: init_std: '.nan': expected a decimal number");
  EXPECT_EQ(messageOf(modelFrom("- 1\n")),
            "m.yaml:1:1: expected a map of keys and values, got a list");
}

TEST(ParseModel, SuggestsTheNearestValue) {
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "norm: rmsnorm\n")),
            "m.yaml:9:7: norm: unknown value 'rmsnorm'; did you mean 'rms_norm'?");
  EXPECT_EQ(gptWith("family: gpt", "family: bert-large"),
            "m.yaml:2:9: family: unknown value 'bert-large'; valid: gpt, llama");
}

TEST(ParseModel, RefusesDuplicateKeys) {
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "layers: 3\n")),
            "m.yaml:9:1: duplicate key 'layers'");
}

TEST(ParseModel, RefusesNumbersOutOfRange) {
  EXPECT_EQ(gptWith("layers: 2", "layers: 99999999999999999999"),
            "m.yaml:3:9: layers: '99999999999999999999' is out of range");
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "init_std: 1e999\n")),
            "m.yaml:9:11: init_std: '1e999': the number is out of range");
}

TEST(ParseModel, M1SizesArePositiveAndBounded) {
  for (const char* key :
       {"layers: 2", "hidden_size: 8", "ffn_size: 32", "vocab_size: 50", "max_sequence: 16"}) {
    const std::string name(key, std::string(key).find(':'));
    EXPECT_THAT(gptWith(key, name + ": 0"), HasSubstr(name + ": must be 1 to 1073741824, got 0"));
    EXPECT_THAT(gptWith(key, name + ": -8"), HasSubstr(name + ": must be 1 to 1073741824, got -8"));
    EXPECT_THAT(gptWith(key, name + ": 1073741826"), HasSubstr(name + ": must be 1 to 1073741824"));
  }
  EXPECT_THAT(gptWith("heads: 2", "heads: 0"), HasSubstr("heads: must be 1 to"));
  EXPECT_THAT(gptWith("heads: 2", "heads: 2048\nhead_size: 1048576"),
              HasSubstr("heads x head_size must be at most"));
}

TEST(ParseModel, HeadsMustDivideHiddenSizeUnlessHeadSizeIsGiven) {
  EXPECT_EQ(gptWith("heads: 2", "heads: 3"),
            "m.yaml:5:8: heads: 3 does not divide hidden_size (8) and head_size is not given");
  EXPECT_EQ(modelFrom(replaced(kGpt, "heads: 2", "heads: 3\nhead_size: 4"))->headSize, 4);
}

TEST(ParseModel, M2KvHeadsDivideHeads) {
  EXPECT_EQ(gptWith("heads: 2", "heads: 2\nkv_heads: 4"),
            "m.yaml:6:11: kv_heads: must divide heads (2), got 4");
}

TEST(ParseModel, M3RotaryNeedsAnEvenHeadSize) {
  EXPECT_EQ(messageOf(modelFrom(replaced(kLlama, "kv_heads: 2", "kv_heads: 2\nhead_size: 3"))),
            "m.yaml:6:12: head_size: must be even with rotary positions, got 3");
  EXPECT_THAT(messageOf(modelFrom(replaced(kLlama, "500000", "0.5"))),
              HasSubstr("rope_theta: must be at least 1, got 0.5"));
}

TEST(ParseModel, M3RopeThetaWithoutRotaryIsRefused) {
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "rope_theta: 500000\n")),
            "m.yaml:9:13: rope_theta: has no effect with learned positions: remove it");
}

TEST(ParseModel, M4EpsilonIsPositive) {
  EXPECT_THAT(messageOf(modelFrom(std::string(kGpt) + "norm_epsilon: 0\n")),
              HasSubstr("norm_epsilon: must be above 0, got 0"));
  EXPECT_THAT(messageOf(modelFrom(std::string(kGpt) + "init_std: -1\n")),
              HasSubstr("init_std: must not be negative, got -1"));
}

TEST(ParseModel, M5ParameterCountIsBounded) {
  EXPECT_THAT(gptWith("layers: 2\nhidden_size: 8", "layers: 1073741824\nhidden_size: 65536"),
              HasSubstr("layers: the model has more than 10^18 parameters"));
}

TEST(ParseModel, M6NameHasNoControlCharacters) {
  EXPECT_THAT(gptWith("name: tiny", "name: \"a\\tb\""),
              HasSubstr("name: must be text without control characters"));
}

std::string llamaScaled(const std::string& scaling) {
  return messageOf(modelFrom(std::string(kLlama) + "rope_scaling: " + scaling + "\n"));
}

TEST(ParseModel, RopeScalingIsRead) {
  const std::string llama3 =
      "{type: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4.5, "
      "original_max_position_embeddings: 8192}";
  const RopeScaling expected{RopeScalingKind::kLlama3, 8, 1, 4.5, 8192};
  EXPECT_EQ(modelFrom(kLlama)->ropeScaling, RopeScaling{});
  EXPECT_EQ(modelFrom(std::string(kLlama) + "rope_scaling: " + llama3 + "\n")->ropeScaling,
            expected);
  EXPECT_EQ(
      modelFrom(std::string(kLlama) + "rope_scaling: {type: linear, factor: 2}\n")->ropeScaling,
      (RopeScaling{.kind = RopeScalingKind::kLinear, .factor = 2}));
  // Equal models are equal specs.
  EXPECT_EQ(
      modelFrom(std::string(kLlama) + "rope_scaling: {type: linear, factor: 1}\n")->ropeScaling,
      RopeScaling{});
}

TEST(ParseModel, RopeScalingHasTheNumbersOfItsType) {
  EXPECT_EQ(llamaScaled("{type: yarn, factor: 4, beta_fast: 32}"),
            "m.yaml:13:22: rope_scaling.type: unknown value 'yarn'; valid: linear, llama3");
  EXPECT_EQ(llamaScaled("{factor: 4}"), "m.yaml:13:15: rope_scaling.type: missing");
  EXPECT_EQ(llamaScaled("{type: linear}"), "m.yaml:13:15: rope_scaling.factor: missing");
  EXPECT_EQ(llamaScaled("{type: llama3, factor: 8}"),
            "m.yaml:13:15: rope_scaling.low_freq_factor, rope_scaling.high_freq_factor, "
            "rope_scaling.original_max_position_embeddings: missing");
  EXPECT_EQ(llamaScaled("{type: linear, factor: 2, low_freq_factor: 1}"),
            "m.yaml:13:58: rope_scaling.low_freq_factor: has no effect with this type: remove it");
  EXPECT_THAT(llamaScaled("{type: linear, facto: 2}"), HasSubstr("'facto'; did you mean 'factor'"));
  EXPECT_EQ(llamaScaled("8"),
            "m.yaml:13:15: rope_scaling: expected a map of keys and values, got '8'");
}

TEST(ParseModel, M7RopeScalingMakesSense) {
  EXPECT_EQ(llamaScaled("{type: linear, factor: 0.5}"),
            "m.yaml:13:38: rope_scaling.factor: must be at least 1, got 0.5");
  EXPECT_EQ(
      llamaScaled("{type: llama3, factor: 8, low_freq_factor: 4, high_freq_factor: 4, "
                  "original_max_position_embeddings: 8192}"),
      "m.yaml:13:79: rope_scaling.high_freq_factor: must be above low_freq_factor (4), got 4");
  EXPECT_EQ(messageOf(modelFrom(std::string(kGpt) + "rope_scaling: {type: linear, factor: 2}\n")),
            "m.yaml:9:15: rope_scaling: has no effect with learned positions: remove it");
  ModelSpec m = modelFrom(kLlama).value();
  m.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 0};
  EXPECT_EQ(messageOf(verifyModel(m)), "rope_scaling.factor: must be at least 1, got 0");
}

TEST(VerifyModel, NamesTheKey) {
  ModelSpec m = modelFrom(kGpt).value();
  EXPECT_TRUE(verifyModel(m).ok());
  m.numKvHeads = 3;
  EXPECT_EQ(messageOf(verifyModel(m)), "kv_heads: must divide heads (2), got 3");
  m.normEpsilon = std::numeric_limits<double>::quiet_NaN();
  m.numKvHeads = 2;
  EXPECT_EQ(messageOf(verifyModel(m)), "norm_epsilon: must be above 0, got nan");
}

TEST(PrintModel, RoundTripsExactly) {
  for (const char* text : {kGpt, kLlama}) {
    ModelSpec m = modelFrom(text).value();
    m.initStd = 0.1 + 0.2;  // needs all 17 digits
    m.normEpsilon = 1e-300;
    if (m.position == PositionKind::kRotary) {
      m.ropeTheta = 1e22;
      m.ropeScaling = {RopeScalingKind::kLlama3, 0.1 + 8.2, 1e-300, 4, int64_t{1} << 30};
    }
    const Result<ModelSpec> again = modelFrom(printModel(m));
    ASSERT_TRUE(again.has_value()) << messageOf(again);
    EXPECT_EQ(*again, m);
  }
}

TEST(PrintModel, RoundTripsEveryCombinationOfKinds) {
  for (int bits = 0; bits < 128; ++bits) {
    ModelSpec m = modelFrom(kGpt).value();
    m.family = bits & 1 ? ModelFamily::kLlama : ModelFamily::kGpt;
    m.norm = bits & 2 ? NormKind::kRmsNorm : NormKind::kLayerNorm;
    m.activation = bits & 4 ? ActivationKind::kSwiGlu : ActivationKind::kGeluTanh;
    m.position = bits & 8 ? PositionKind::kRotary : PositionKind::kLearned;
    if (bits & 8) m.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 2.5};
    m.tiedEmbeddings = bits & 16;
    m.qkvBias = bits & 32;
    m.linearBias = bits & 64;
    const Result<ModelSpec> again = modelFrom(printModel(m));
    ASSERT_TRUE(again.has_value()) << messageOf(again);
    EXPECT_EQ(*again, m);
  }
}

TEST(PrintModel, RoundTripsNamesThatYamlWouldMisread) {
  for (const char* name : {"",    "null", "true",       "~",           "1.5", "a: b", "# x",
                           " a ", "it's", "say \"hi\"", "back\\slash", "[a]", "{a}",  "*a",
                           "&a",  "!a",   "- a",        "\xC3\xA9",    "%a",  "@a",   "a,b"}) {
    ModelSpec m = modelFrom(kGpt).value();
    m.name = name;
    const Result<ModelSpec> again = modelFrom(printModel(m));
    ASSERT_TRUE(again.has_value()) << messageOf(again);
    EXPECT_EQ(again->name, name);
  }
}

TEST(LoadModel, MissingFileIsUnavailable) {
  const Result<ModelSpec> model = loadModel("/nowhere/model.yaml");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(messageOf(model), StartsWith("/nowhere/model.yaml: cannot read: No such file"));
}

TEST(LoadModel, FolderIsUnavailable) {
  EXPECT_THAT(messageOf(loadModel(examplePath("models"))), HasSubstr("it is a folder"));
}

TEST(LoadModel, ErrorsStartWithThePath) {
  const std::string path = ::testing::TempDir() + "load_model_test.yaml";
  std::ofstream(path) << "layers: x\n";
  EXPECT_THAT(messageOf(loadModel(path)),
              StartsWith(path + ":1:9: layers: expected a whole number"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace trireme::spec
