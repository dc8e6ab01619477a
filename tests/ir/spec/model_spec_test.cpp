#include "ir/spec/model_spec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {

ModelSpec llama(int64_t layers, int64_t hidden, int64_t heads, int64_t kvHeads, int64_t ffn,
                int64_t vocab) {
  ModelSpec m{.family = ModelFamily::kLlama,
              .numLayers = layers,
              .hiddenSize = hidden,
              .numHeads = heads,
              .numKvHeads = kvHeads,
              .headSize = hidden / heads,
              .ffnSize = ffn,
              .vocabSize = vocab,
              .maxSequence = 4096};
  m.norm = NormKind::kRmsNorm;
  m.activation = ActivationKind::kSwiGlu;
  m.position = PositionKind::kRotary;
  m.tiedEmbeddings = m.qkvBias = m.linearBias = false;
  return m;
}

struct Published {
  const char* file;
  int64_t parameters;
};

// Counts of the published checkpoints.
TEST(NumParameters, OfExamplesMatchesThePublishedCheckpoints) {
  for (const Published& p :
       {Published{"gpt2-124m", 124'439'808}, Published{"gpt2-350m", 354'823'168},
        Published{"gpt2-774m", 774'030'080}, Published{"gpt2-1.5b", 1'557'611'200},
        Published{"llama2-7b", 6'738'415'616}, Published{"llama2-13b", 13'015'864'320},
        Published{"llama2-70b", 68'976'648'192}, Published{"llama3-8b", 8'030'261'248},
        Published{"llama3-70b", 70'553'706'496}, Published{"llama3-405b", 405'853'388'800},
        Published{"mistral-7b", 7'241'732'096}, Published{"qwen2-7b", 7'615'616'512},
        Published{"qwen2-72b", 72'706'203'648}}) {
    const Result<ModelSpec> model =
        loadModel(examplePath(std::string("models/") + p.file + ".yaml"));
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    EXPECT_EQ(model->numParameters(), p.parameters) << p.file;
    EXPECT_EQ(model->name, p.file);
  }
}

// Published as billions with so many digits: SC 2021, Table 1; Smith et al. 2022; the table of
// mosaicml/llm-foundry, whose 1b, 3b... are names and whose counts stand in its configurations.
TEST(NumParameters, OfExamplesRoundsToThePublishedDigits) {
  struct Rounded {
    const char* file;
    const char* billions;
    int digits;
  };
  for (const Rounded& p : {Rounded{"gpt-1.7b", "1.7", 1},     Rounded{"gpt-3.6b", "3.6", 1},
                           Rounded{"gpt-7.5b", "7.5", 1},     Rounded{"gpt-18.4b", "18.4", 1},
                           Rounded{"gpt-39.1b", "39.1", 1},   Rounded{"gpt-76.1b", "76.1", 1},
                           Rounded{"gpt-145.6b", "145.6", 1}, Rounded{"gpt-310.1b", "310.1", 1},
                           Rounded{"gpt-529.6b", "529.6", 1}, Rounded{"gpt-1008b", "1008.0", 1},
                           Rounded{"gpt3-175b", "174.6", 1},  Rounded{"mt-nlg-530b", "530", 0},
                           Rounded{"mpt-125m", "0.1253", 4},  Rounded{"mpt-350m", "0.356", 3},
                           Rounded{"mpt-760m", "0.7605", 4},  Rounded{"mpt-1b", "1.316", 3},
                           Rounded{"mpt-3b", "2.6518", 4},    Rounded{"mpt-7b", "6.6589", 4},
                           Rounded{"mpt-13b", "12.854", 3},   Rounded{"mpt-30b", "29.9752", 4},
                           Rounded{"mpt-70b", "64.8624", 4}}) {
    const Result<ModelSpec> model = loadModel(p.file);
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    const double billions = static_cast<double>(model->numParameters()) / 1e9;
    EXPECT_EQ(fmt::format("{:.{}f}", billions, p.digits), p.billions) << p.file;
    EXPECT_EQ(model->name, p.file);
  }
}

TEST(NumParameters, CountsTiedWeightsOnceAsQwen2HalfBillion) {
  ModelSpec m = llama(24, 896, 14, 2, 4864, 151'936);
  m.qkvBias = true;
  m.tiedEmbeddings = true;
  EXPECT_EQ(m.numParameters(), 494'032'768);
  m.tiedEmbeddings = false;
  EXPECT_EQ(m.numParameters(), 494'032'768 + 151'936 * 896);
}

// Narayanan et al., SC 2021, equation 2: P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), which
// leaves out the final norm (2 h). With l = 96, h = 12288, V = 51200, s = 2048:
//   12 l h^2 = 173,946,175,488; 13 l h = 15,335,424; (V + s) h = 654,311,424; 2 h = 24,576.
TEST(NumParameters, OfGpt3MatchesTheMegatronFormula) {
  const Result<ModelSpec> model = loadModel(examplePath("models/gpt3-175b.yaml"));
  ASSERT_TRUE(model.has_value()) << messageOf(model);
  EXPECT_EQ(model->numParameters(), 173'946'175'488 + 15'335'424 + 654'311'424 + 24'576);
}

// h = 2, one head of 2, ffn 3, V = 5, s = 7, by hand:
//   q, k, v 3 x (4 + 2) = 18; out 4 + 2 = 6; up 6 + 3 = 9; down 6 + 2 = 8; two norms 8; final norm
//   4; tokens 10; positions 14. Sum 77.
TEST(NumParameters, OfATinyModelMatchesHandCount) {
  ModelSpec m{.numLayers = 1,
              .hiddenSize = 2,
              .numHeads = 1,
              .numKvHeads = 1,
              .headSize = 2,
              .ffnSize = 3,
              .vocabSize = 5,
              .maxSequence = 7};
  EXPECT_EQ(m.numParameters(), 77);
  m.qkvBias = false;
  EXPECT_EQ(m.numParameters(), 71);
  m.linearBias = false;  // out 2, up 3, down 2
  EXPECT_EQ(m.numParameters(), 64);
  m.activation = ActivationKind::kSwiGlu;  // a second input matrix
  EXPECT_EQ(m.numParameters(), 70);
  m.linearBias = true;  // and its bias
  EXPECT_EQ(m.numParameters(), 80);
}

}  // namespace
}  // namespace trireme::spec
