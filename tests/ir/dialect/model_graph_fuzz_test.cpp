// Damaged model text: parseModelGraph answers with a graph that round-trips or with an error that
// names the file, whatever the bytes. Deterministic: the same mutations in every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/dialect/model_graph.h"
#include "tests/ir/dialect/graphs.h"
#include "tests/support/damaged_text.h"

namespace trireme::dialect {
namespace {

std::string validText(const spec::ModelSpec& model) {
  return printModelGraph(graph::buildGraph(model, training(spec::Precision::kBf16, 0.1), 2, 16));
}

// Under sanitizers, where MLIR is slow, every fifth text: kinds of damage that take turns all come.
void check(const std::string& text) {
  static int texts = 0;
  if (TRIREME_SANITIZED && texts++ % 5 != 0) return;
  const Result<graph::ModelGraph> graph = parseModelGraph(text, "model.mlir");
  if (!graph.has_value()) {
    EXPECT_EQ(graph.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(graph.error().message(), ::testing::HasSubstr("model.mlir:")) << text;
    return;
  }
  const Result<graph::ModelGraph> again = parseModelGraph(printModelGraph(*graph), "model.mlir");
  ASSERT_TRUE(again.has_value()) << again.error().message() << "\n" << text;
  EXPECT_TRUE(*again == *graph) << text << "\n" << printModelGraph(*graph);
}

TEST(ModelGraphFuzz, BytesAreChangedInsertedAndRemoved) {
  const char* const kBytes = "0123456789-.:[]{}()<>,#'\"\n \t%@^!=/x*\\\x01\x7f\xc3\xff";
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama()})
    damageBytes(validText(model), kBytes, 1500, 3, check);
}

// Words that stand where words stand: most of these parse, so the verifiers see them.
TEST(ModelGraphFuzz, WordsAreReplacedByOthersOfTheText) {
  std::mt19937 random(11);
  const std::string separators = " ,()<>{}[]:=\n\"";
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama()}) {
    const std::string valid = validText(model);
    std::vector<std::pair<size_t, size_t>> words;
    for (size_t begin = valid.find_first_not_of(separators); begin != std::string::npos;) {
      const size_t end = std::min(valid.find_first_of(separators, begin), valid.size());
      words.emplace_back(begin, end - begin);
      begin = valid.find_first_not_of(separators, end);
    }
    for (int i = 0; i < 1000; ++i) {
      const auto [at, size] = words[random() % words.size()];
      auto [from, length] = words[random() % words.size()];
      for (int j = 0; j < 200 && valid[from] != valid[at]; ++j)  // Of the same sort, if there is.
        std::tie(from, length) = words[random() % words.size()];
      check(valid.substr(0, at) + valid.substr(from, length) + valid.substr(at + size));
    }
  }
}

TEST(ModelGraphFuzz, NumbersAreExtreme) {
  const char* const kNumbers[] = {"0",
                                  "-1",
                                  "3",
                                  "2147483648",
                                  "9223372036854775807",
                                  "-9223372036854775808",
                                  "9223372036854775808",
                                  "1.0e999",
                                  "nan",
                                  "0x7FF0000000000000",
                                  "0x7FF8000000000000"};
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama()})
    damageNumbers(validText(model), kNumbers, check);
}

TEST(ModelGraphFuzz, LinesAreLostSwappedAndRepeated) {
  damageLines(validText(tinyGpt()), 4, check);
}

TEST(ModelGraphFuzz, TheFileEndsEarly) { endEarly(validText(tinyLlama()), 3, check); }

}  // namespace
}  // namespace trireme::dialect
