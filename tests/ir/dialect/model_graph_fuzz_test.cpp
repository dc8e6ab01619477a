// Damaged model text: parseModelGraph answers with a graph that round-trips or with an error that
// names the file, whatever the bytes. Deterministic: the same mutations in every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/dialect/model_graph.h"
#include "tests/ir/dialect/graphs.h"

namespace trireme::dialect {
namespace {

std::string validText(const spec::ModelSpec& model) {
  return printModelGraph(graph::buildGraph(model, training(spec::Precision::kBf16, 0.1), 2, 16));
}

void check(const std::string& text) {
  const Result<graph::ModelGraph> graph = parseModelGraph(text, "model.mlir");
  if (!graph.has_value()) {
    EXPECT_EQ(graph.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(graph.error().message(), testing::HasSubstr("model.mlir:")) << text;
    return;
  }
  const Result<graph::ModelGraph> again = parseModelGraph(printModelGraph(*graph), "model.mlir");
  ASSERT_TRUE(again.has_value()) << again.error().message() << "\n" << text;
  EXPECT_TRUE(*again == *graph) << text << "\n" << printModelGraph(*graph);
}

TEST(ModelGraphFuzz, BytesAreChangedInsertedAndRemoved) {
  std::mt19937 random(7);
  const std::string interesting = "0123456789-.:[]{}()<>,#'\"\n \t%@^!=/x*\\\x01\x7f\xc3\xff";
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama()}) {
    const std::string valid = validText(model);
    for (int i = 0; i < 1500; ++i) {
      std::string text = valid;
      for (size_t n = 1 + random() % 3; n > 0; --n) {
        const size_t at = random() % text.size();
        const char byte = interesting[random() % interesting.size()];
        switch (random() % 3) {
          case 0:
            text[at] = byte;
            break;
          case 1:
            text.insert(at, 1, byte);
            break;
          default:
            text.erase(at, 1 + random() % 8);
            break;
        }
      }
      check(text);
    }
  }
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
  for (const spec::ModelSpec& model : {tinyGpt(), tinyLlama()}) {
    const std::string valid = validText(model);
    for (size_t begin = valid.find_first_of("0123456789"); begin != std::string::npos;) {
      const size_t end = std::min(valid.find_first_not_of("0123456789.e-", begin), valid.size());
      for (const char* number : kNumbers)
        check(valid.substr(0, begin) + number + valid.substr(end));
      begin = valid.find_first_of("0123456789", end);
    }
  }
}

TEST(ModelGraphFuzz, LinesAreLostSwappedAndRepeated) {
  const std::string valid = validText(tinyGpt());
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < valid.size();) {
    const size_t end = valid.find('\n', begin) + 1;
    lines.push_back(valid.substr(begin, end - begin));
    begin = end;
  }
  const auto checkLines = [](const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    check(text);
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    auto changed = lines;
    changed.erase(changed.begin() + static_cast<long>(i));
    checkLines(changed);
    for (size_t j = i % 4; j < lines.size(); j += 4) {
      changed = lines;
      std::swap(changed[i], changed[j]);
      checkLines(changed);
      changed = lines;
      changed.insert(changed.begin() + static_cast<long>(i), lines[j]);
      checkLines(changed);
    }
  }
}

TEST(ModelGraphFuzz, TheFileEndsEarly) {
  const std::string valid = validText(tinyLlama());
  for (size_t size = 0; size <= valid.size(); size += 3) check(valid.substr(0, size));
}

}  // namespace
}  // namespace trireme::dialect
