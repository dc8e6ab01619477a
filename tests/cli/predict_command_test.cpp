#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cost_models/validation/row.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

// Rows that the tiny cluster and Trireme's own stack can answer.
class PredictCommand : public CommandTest {
 protected:
  PredictCommand() {
    std::filesystem::create_directories(path("clusters"));
    std::filesystem::create_directories(path("stacks"));
    write("clusters/laptop.yaml", kTinyCluster);
    write("stacks/trireme.yaml", readAll(TRIREME_SOURCE_DIR "/examples/stacks/trireme.yaml"));
  }

  Outcome predict(const std::vector<std::string>& files,
                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"plan", "--predict"};
    args.insert(args.end(), files.begin(), files.end());
    args.insert(args.end(), {"--clusters", path("clusters"), "--stacks", path("stacks")});
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }

  // A row: GPT of four layers on two devices, tp x dp, that took `seconds`.
  static std::string row(const std::string& id, int tp, const std::string& seconds) {
    const std::vector<std::pair<std::string, std::string>> cells = {
        {"id", id},
        {"stack", "trireme"},
        {"scored", "1"},
        {"source", "here"},
        {"gpu", "core"},
        {"gpus", "2"},
        {"model", "GPT"},
        {"layers", "4"},
        {"hidden", "32"},
        {"heads", "4"},
        {"vocab", "256"},
        {"seq", "16"},
        {"global_batch", "8"},
        {"micro_batch", "1"},
        {"tp", std::to_string(tp)},
        {"pp", "1"},
        {"dp", std::to_string(std::max(1, 2 / tp))},
        {"zero", "0"},
        {"recompute", "none"},
        {"precision", "fp32"},
        {"iter_time_s", seconds}};
    std::vector<std::string> texts(cost::rowHeader().size());
    for (const auto& [name, text] : cells)
      for (size_t i = 0; i < texts.size(); ++i)
        if (cost::rowHeader()[i] == name) texts[i] = text;
    return cost::printCsvRecord(texts);
  }
  static std::string header() { return cost::printCsvRecord(cost::rowHeader()); }
};

TEST_F(PredictCommand, PrintsErrorsAndWritesTheRows) {
  const std::string in = write(
      "rows.csv", header() + row("a", 1, "0.001") + row("b", 2, "0.002") + row("c", 3, "0.002"));
  const Outcome outcome = predict({in}, {"-o", path("out.csv")});
  expectSuccess(outcome);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"rows          3, of which 3 are scored and 1 of these skipped",
                           "  rows, trireme\n    here  ", "overall", "worst", "order within sweeps",
                           "1  tp 3 x pp 1 x cp 1 x dp 1 are not the 2 GPUs", "written to"})
    EXPECT_THAT(outcome.out, HasSubstr(part)) << outcome.out;

  std::istringstream lines(readAll(path("out.csv")));
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, ::testing::EndsWith(",fits,cluster,profile,skipped_because"));
  std::getline(lines, line);
  EXPECT_THAT(line, ::testing::StartsWith("a,trireme,1,here,"));
  EXPECT_THAT(line, ::testing::EndsWith(",1,laptop,trireme,"));  // fits, not skipped
}

TEST_F(PredictCommand, SaysOfOneRowWhereItsTimeGoes) {
  const std::string in =
      write("rows.csv", header() + row("a", 1, "0.001") + row("b", 1, "") + row("c", 3, "0.002"));
  const Outcome outcome = predict({in}, {"--row", "a"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, ::testing::StartsWith("row           a of rows: published 1.000 ms, "));
  for (const char* part : {"\nassumed       (R4)", "\nmodel         ", "\nplan          tp 1",
                           "\n  matrix products ", "\nmemory        ", "\noptimum       "})
    EXPECT_THAT(outcome.out, HasSubstr(part)) << outcome.out;
  EXPECT_THAT(predict({in}, {"--row", "b"}).out,
              HasSubstr("row           b of rows: no step time is published\n"));
  const nlohmann::json json = nlohmann::json::parse(predict({in}, {"--row", "a", "--json"}).out);
  EXPECT_GT(json.at("estimate").at("stepSeconds"), 0);
  EXPECT_EQ(json.at("row").at("id"), "a");
  EXPECT_EQ(json.at("row").at("profile"), "trireme");
  EXPECT_NEAR(json.at("row").at("publishedSeconds"), 0.001, 1e-9);
  const nlohmann::json without = nlohmann::json::parse(predict({in}, {"--row", "b", "--json"}).out);
  EXPECT_TRUE(without.at("row").at("error").is_null());
  const std::string twin = write("twin.csv", header() + row("a", 1, "0.002"));
  expectRefusal(predict({in, twin}, {"--row", "a"}), 1, {"rows and twin both have a row 'a'"});

  expectRefusal(predict({in}, {"--row", "c"}), 1, {"rows, row c: tp 3 x pp 1"});
  expectRefusal(predict({in}, {"--row", "aa"}), 1,
                {"--row: no row has the id 'aa'; the nearest is 'a'"});
  expectRefusal(predict({in}, {"--row", "a", "-o", path("out.csv")}), 2,
                {"--output excludes --row"});
  expectRefusal(plan({"--row", "a"}), 2, {"--row requires --predict"});
}

// The price of what the profile describes would pass for that of the row.
TEST_F(PredictCommand, SoftwareThatTheProfileDoesNotDescribeIsSkipped) {
  std::string text = replaced(row("a", 1, "9"), ",core,", ",A100-80GB-SXM,");
  text = replaced(replaced(text, ",fp32,", ",bf16,"), "a,trireme,", "a,megatron-core,");
  const auto outcome = [&](const std::string& sharing) {
    const std::string rows = replaced(text, ",2,,,,0,,none,", ",2,,,," + sharing + ",,none,");
    return runTrireme({"plan", "--predict", write("rows.csv", header() + rows)}).out;
  };
  EXPECT_THAT(outcome("1"), HasSubstr("1 are scored and 0 of these skipped"));
  EXPECT_THAT(outcome("2"), HasSubstr("1 are scored and 1 of these skipped"));
  EXPECT_THAT(outcome("2"), HasSubstr("has no state sharding gradients"));
}

TEST_F(PredictCommand, NamesDevicesThatNeedCaution) {
  const std::string in = write("rows.csv", header() + row("a", 1, "0.001"));
  const std::string none = write("none.csv", header());
  EXPECT_EQ(predict({in}).err, "");
  write("clusters/laptop.yaml",
        replaced(kTinyCluster, "  kind: host", "  kind: host\n  caution: of one machine"));
  EXPECT_EQ(predict({in}).err, "note: device core: of one machine\n");
  EXPECT_THAT(predict({none}).err, ::testing::Not(HasSubstr("of one machine")));
}

TEST_F(PredictCommand, SeveralFilesAreFamiliesOfTheirOwn) {
  const std::string one = write("one.csv", header() + row("a", 1, "0.001"));
  const std::string two = write("two.csv", header() + row("b", 1, "0.002"));
  const Outcome outcome = predict({one, two}, {"--json"});
  expectSuccess(outcome);
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json.at("families").size(), 2u);
  EXPECT_EQ(json["families"][0].at("file"), "one");
  EXPECT_EQ(json["families"][1].at("file"), "two");
  // The same run, measured once in 1 ms and once in 2.
  const double first = json["families"][0].at("meanSigned"),
               second = json["families"][1].at("meanSigned");
  EXPECT_NEAR(1 + first, 2 * (1 + second), 1e-9);
}

TEST_F(PredictCommand, AFileCountsOnceAndFilesOfOneNameAreToldApart) {
  const std::string one = write("one.csv", header() + row("a", 1, "0.001"));
  expectRefusal(predict({one, path("./one.csv")}), 1, {"--predict: ", "one.csv are one file"});
  const std::string other = write("clusters/one.csv", header() + row("b", 1, "0.002"));
  const Outcome outcome = predict({one, other}, {"--json"});
  expectSuccess(outcome);
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json.at("families").size(), 2u);
  EXPECT_EQ(json["families"][0].at("file"), one);
  EXPECT_EQ(json["families"][1].at("file"), other);
}

TEST_F(PredictCommand, ShippedClustersAndStacksAnswerWithoutFolders) {
  std::string text = replaced(row("a", 1, "9"), ",core,", ",A100-80GB-SXM,");
  text = replaced(text, ",fp32,", ",bf16,");
  const Outcome outcome = runTrireme({"plan", "--predict", write("rows.csv", header() + text)});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("scored and 0 of these skipped"));
}

TEST_F(PredictCommand, WrongFilesAreRefusedWithTheirPlace) {
  expectRefusal(predict({write("rows.csv", header() + row("a", 1, "fast"))}), 1,
                {"rows.csv:2:", "iter_time_s: expected a number from 1e-12 to 1e15, got 'fast'"});
  expectRefusal(predict({write("rows.csv", "id,stack\n")}), 1,
                {"rows.csv:1:4: the header has 2 columns, expected 39; 'scored' is missing"});
  expectRefusal(predict({path("none.csv")}), 1, {"none.csv: cannot read: No such file"});
  write("clusters/bad.yaml", replaced(kTinyCluster, "name: core", "nam: core"));
  expectRefusal(predict({write("rows.csv", header())}), 1, {"bad.yaml:", "unknown key 'nam'"});
}

TEST_F(PredictCommand, OutputNeverReplacesAnInput) {
  const std::string in = write("rows.csv", header() + row("a", 1, "1"));
  const std::string before = readAll(in);
  expectRefusal(predict({in}, {"-o", in}), 1, {"-o " + in + ": is also --predict"});
  std::filesystem::create_symlink(in, path("link.csv"));
  expectRefusal(predict({in}, {"-o", path("link.csv")}), 1, {"is also --predict"});
  EXPECT_EQ(readAll(in), before);
  expectRefusal(predict({in}, {"-o", path("clusters/laptop.yaml")}), 1, {"is also --clusters"});
  expectRefusal(predict({in}, {"-o", path("no/folder/out.csv")}), 1, {"cannot write"});
}

TEST_F(PredictCommand, IsNoSearch) {
  const std::string in = write("rows.csv", header());
  expectRefusal(predict({in}, {"--model", model}), 2, {"--model excludes --predict"});
  expectRefusal(predict({in}, {"--tp", "2"}), 2, {"--tp excludes --predict"});
  expectRefusal(plan({"--clusters", path("clusters")}), 2, {"--clusters requires --predict"});
  expectRefusal(runTrireme({"plan", "--cluster", cluster}), 2, {"--model is required"});
}

TEST_F(PredictCommand, SaysWhereNoRowIsPredicted) {
  const std::string rows = row("a", 3, "0.002") + row("b", 3, "0.003");
  const Outcome outcome = predict({write("rows.csv", header() + rows)});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("note: none of 2 rows can be predicted; the first, a: "));
  EXPECT_THAT(outcome.out, HasSubstr("scored and 2 of these skipped"));
  const Outcome json = predict({write("rows.csv", header() + rows)}, {"--json"});
  EXPECT_TRUE(nlohmann::json::parse(json.out)["overall"]["meanAbsolute"].is_null()) << json.out;
  std::string fewer = header();
  fewer.replace(fewer.rfind(",notes"), 6, "");
  expectRefusal(predict({write("rows.csv", fewer + rows)}), 1,
                {"rows.csv:1:", "the header has 38 columns, expected 39; 'notes' is missing"});
}

TEST_F(PredictCommand, NoRowsAreNoError) {
  const Outcome outcome = predict({write("rows.csv", header())});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("rows          0, of which 0 are scored"));
  EXPECT_EQ(outcome.err, "note: there is no row\n");
}

}  // namespace
}  // namespace trireme::cli
