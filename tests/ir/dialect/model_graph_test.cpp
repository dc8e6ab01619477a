#include "ir/dialect/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ir/spec/load.h"
#include "tests/ir/dialect/graphs.h"
#include "tests/support/text.h"

namespace trireme::dialect {
namespace {

using spec::Precision;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void expectRoundTrip(const graph::ModelGraph& graph) {
  const std::string text = printModelGraph(graph);
  const Result<graph::ModelGraph> again = parseModelGraph(text, "model.mlir");
  ASSERT_TRUE(again.has_value()) << again.error().message() << "\n" << text;
  for (const auto block :
       {&graph::ModelGraph::embedding, &graph::ModelGraph::layer, &graph::ModelGraph::head}) {
    EXPECT_EQ(((*again).*block).tensors, (graph.*block).tensors) << (graph.*block).name;
    EXPECT_EQ(((*again).*block).parameters, (graph.*block).parameters) << (graph.*block).name;
    EXPECT_EQ(((*again).*block).forward, (graph.*block).forward) << (graph.*block).name;
    EXPECT_EQ(((*again).*block).backward, (graph.*block).backward) << (graph.*block).name;
  }
  EXPECT_TRUE(*again == graph) << text;
  EXPECT_EQ(printModelGraph(*again), text);
}

TEST(ModelGraphText, EveryExampleModelRoundTrips) {
  int numModels = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(TRIREME_SOURCE_DIR) + "/examples/models")) {
    if (!entry.is_regular_file()) continue;
    const auto model = spec::loadModel(entry.path());
    ASSERT_TRUE(model.has_value()) << model.error().message();
    for (const double dropout : {0.0, 0.1})
      expectRoundTrip(graph::buildGraph(*model,
                                        training(Precision::kBf16, dropout, model->maxSequence), 2,
                                        (model->vocabSize + 1023) / 1024 * 1024));
    ++numModels;
  }
  EXPECT_GE(numModels, 14);
}

TEST(ModelGraphText, KeepsWhatMultipliesInTf32) {
  spec::TrainingSpec tf32 = training(Precision::kFp32, 0);
  tf32.tf32 = true;
  const graph::ModelGraph graph = graph::buildGraph(tinyGpt(), tf32, 2, 16);
  EXPECT_NE(printModelGraph(graph).find("trireme.matmul"), std::string::npos);
  EXPECT_NE(printModelGraph(graph).find("{tf32}"), std::string::npos);
  expectRoundTrip(graph);
}

TEST(ModelGraphText, BothFamiliesRoundTripInEveryPrecision) {
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama(), scaledLlama()})
    for (const Precision precision :
         {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16})
      for (const double dropout : {0.0, 0.1})
        for (const int64_t layers : {1, 3}) {
          spec::ModelSpec changed = model;
          changed.numLayers = layers;
          expectRoundTrip(graph::buildGraph(changed, training(precision, dropout), 2, 16));
        }
}

TEST(ModelGraphText, KeepsTheScalingOfRotaryPositions) {
  const auto of = [](RopeScaling scaling) {
    spec::ModelSpec model = tinyLlama();
    model.ropeScaling = scaling;
    return printModelGraph(graph::buildGraph(model, training(Precision::kFp32, 0), 2, 16));
  };
  const std::string linear = of({.kind = RopeScalingKind::kLinear, .factor = 2});
  EXPECT_NE(linear.find("#trireme.rope_scaling<kind = linear, factor = 2.000000e+00 : f64>"),
            std::string::npos);
  EXPECT_EQ(of({}).find("rope_scaling"), std::string::npos);
  const auto again = parseModelGraph(linear, "model.mlir");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(printModelGraph(*again), linear);
}

// tests/lit checks that trireme-opt reads the golden files and writes them as they are.
std::string golden(const std::string& name) {
  std::ifstream file(std::string(TRIREME_SOURCE_DIR) + "/tests/lit/dialect/" + name);
  std::string text, line;
  while (std::getline(file, line))
    if (!line.starts_with("//")) text += line + "\n";
  return text;
}

TEST(ModelGraphText, GoldenFilesAreWhatIsPrinted) {
  EXPECT_EQ(printModelGraph(graph::buildGraph(tinyGpt(), training(Precision::kFp32, 0.125), 2, 16)),
            golden("model_gpt.mlir"));
  EXPECT_EQ(printModelGraph(graph::buildGraph(tinyLlama(), training(Precision::kBf16, 0), 2, 16)),
            golden("model_llama.mlir"));
}

TEST(ModelGraphText, NamesThatAreNoSsaNamesAreKept) {
  graph::ModelGraph graph = graph::buildGraph(tinyGpt(), training(Precision::kFp32, 0.1), 2, 16);
  graph.layer.tensors[1].name = "7 of 9";
  graph.layer.parameters[0].name = "layers.{}.\"7\" of 9";
  graph.layer.tensors[4].name = graph.layer.tensors[3].name;
  for (const char* name : {"", "a model/with \"quotes\"\n"}) {
    graph.name = name;
    const auto again = parseModelGraph(printModelGraph(graph), "model.mlir");
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(again->name, graph.name);
    EXPECT_EQ(again->layer.tensors[1].name, graph.layer.tensors[1].name);
    EXPECT_EQ(again->layer.tensors[4].name, graph.layer.tensors[4].name);
    EXPECT_EQ(again->layer.parameters, graph.layer.parameters);
  }
}

TEST(ModelGraphText, ErrorsNameThePlace) {
  const std::string valid =
      printModelGraph(graph::buildGraph(tinyGpt(), training(Precision::kFp32, 0), 2, 16));
  const auto messageOf = [](const std::string& text) {
    const auto graph = parseModelGraph(text, "model.mlir");
    return graph.has_value() ? "no error" : graph.error().message();
  };
  EXPECT_THAT(messageOf(valid.substr(0, valid.find("#sb") + 3)),
              HasSubstr("model.mlir:11:"));  // Ten other aliases come before it.
  EXPECT_THAT(messageOf(""), HasSubstr("model.mlir:1:1: expected one trireme.model"));
  EXPECT_THAT(messageOf(valid + valid.substr(valid.find("module"))), HasSubstr("model.mlir:1:1"));
  EXPECT_THAT(
      messageOf(replaced(valid, "@layer(%embedding)", "@later(%embedding)")),
      MatchesRegex("model\\.mlir:[0-9]+:[0-9]+: .*\\(M1\\) no block is called @later; valid: "
                   "@embedding @layer @head"));
}

}  // namespace
}  // namespace trireme::dialect
