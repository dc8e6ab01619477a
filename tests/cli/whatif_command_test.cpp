#include "tests/cli/whatif_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

TEST_F(WhatifCommand, TableIsWithinAHundredColumns) {
  const Outcome outcome = runTrireme({"whatif",
                                      "--model",
                                      "gpt3-175b",
                                      "--cluster",
                                      "dgx-h100",
                                      "--stack",
                                      "megatron-core",
                                      "--gpus",
                                      "16,64..512",
                                      "--inter-node",
                                      "200,400 Gbit/s",
                                      "--batch",
                                      "512",
                                      "--seq",
                                      "2048",
                                      "--tokens",
                                      "300B",
                                      "--price",
                                      "2.5 USD/h",
                                      "--deadline",
                                      "1 d, 60 d",
                                      "--budget",
                                      "1 USD, 5 MUSD",
                                      "--mtbf",
                                      "5 y",
                                      "--checkpoint-bandwidth",
                                      "100 GB/s",
                                      "--restart",
                                      "10 min",
                                      "--repair",
                                      "2 d"});
  expectSuccess(outcome);
  for (const char* part :
       {"network", "GPUs", "MFU", "USD", "MWh", "within 60.0 d", "fewest devices",
        "none of those asked about, up to ", "none of those asked about; the cheapest",
        "save every", "spares", "front", "plans", "no plan", "16 GPUs"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(WhatifCommand, ANameThatIsLongerThanALineIsBroken) {
  model = write("model.yaml", replaced(kTinyModel, "tiny", std::string(150, 'n')));
  const Outcome outcome = whatif({"--gpus", "4,8"});
  expectSuccess(outcome);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST_F(WhatifCommand, APointIsThePlansAnswer) {
  const nlohmann::json points =
      jsonOf(whatif({"--gpus", "2..8", "--batch", "8", "--json"})).at("points");
  ASSERT_EQ(points.size(), 3u);
  for (const nlohmann::json& point : points) {
    const nlohmann::json alone =
        jsonOf(plan({"--gpus", std::to_string(point.at("gpus").get<int>()), "--json"}))
            .at("estimate");
    EXPECT_EQ(point.at("stepSeconds"), alone.at("stepSeconds"));
    EXPECT_EQ(point.at("breakdownSeconds"), alone.at("breakdownSeconds"));
    EXPECT_EQ(point.at("memoryBytes"), alone.at("memoryTotalBytes"));
    EXPECT_EQ(point.at("memoryTight"), alone.at("memoryTight"));
  }
}

TEST_F(WhatifCommand, AGpuIsAShippedSystemWithItsOwnPrecisionAndPrice) {
  const nlohmann::json points =
      jsonOf(runTrireme({"whatif", "--model", "llama2-7b", "--cluster", "dgx-a100", "--gpu",
                         "h100,B200", "--stack", "megatron-core", "--batch", "128", "--seq", "4096",
                         "--tokens", "1B", "--price", "2,5 USD/h", "--json"}))
          .at("points");
  ASSERT_EQ(points.size(), 2u);
  const char* const kClusters[] = {"dgx-h100", "dgx-b200"};
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(points[i].at("gpus"), 64);  // of dgx-a100
    EXPECT_EQ(points[i].at("usdPerGpuHour"), i == 0 ? 2 : 5);
    const nlohmann::json alone = jsonOf(
        runTrireme({"plan", "--model", "llama2-7b", "--cluster", kClusters[i], "--stack",
                    "megatron-core", "--gpus", "64", "--batch", "128", "--seq", "4096", "--json"}));
    EXPECT_EQ(points[i].at("stepSeconds"), alone.at("estimate").at("stepSeconds"));
  }
}

TEST_F(WhatifCommand, GpuTakesThePlaceOfTheCluster) {
  const std::vector<std::string> base = {"whatif",  "--model", "llama2-7b", "--cluster", "dgx-a100",
                                         "--stack", "nemo",    "--batch",   "128",       "--seq",
                                         "4096",    "--gpu",   "h100,h200"};
  EXPECT_THAT(runTrireme(base).err,
              HasSubstr("note: --gpu takes the place of dgx-a100, which says how many"));
  std::vector<std::string> sized = base;
  sized.insert(sized.end(), {"--gpus", "16"});
  EXPECT_THAT(runTrireme(sized).err, HasSubstr("dgx-a100: it is not among what is compared"));
  sized[4] = "dgx-h100";
  EXPECT_THAT(runTrireme(sized).err, Not(HasSubstr("takes the place")));
}

// A list as long as --gpu's is one price each; a range is swept.
TEST_F(WhatifCommand, ARangeOfPricesIsSweptWhateverItsLength) {
  const auto prices = [&](const std::string& text) {
    const nlohmann::json answer = jsonOf(runTrireme(
        {"whatif", "--model", "llama2-7b", "--stack", "nemo", "--batch", "128", "--seq", "4096",
         "--gpu", "h100,h200", "--gpus", "16", "--tokens", "1B", "--price", text, "--json"}));
    std::vector<double> found;
    for (const nlohmann::json& point : answer.at("points"))
      found.push_back(point.at("usdPerGpuHour").get<double>());
    return found;
  };
  EXPECT_THAT(prices("2,4 USD/h"), ::testing::ElementsAre(2, 4));
  EXPECT_THAT(prices("2..4 USD/h"), ::testing::ElementsAre(2, 4, 2, 4));
}

// As many as GPUs, repeats among them: one each, in their order.
TEST_F(WhatifCommand, TwoGpusMayHaveTheSamePrice) {
  const nlohmann::json points =
      jsonOf(runTrireme({"whatif",         "--model",     "llama2-7b", "--stack",        "nemo",
                         "--batch",        "128",         "--seq",     "4096",           "--gpu",
                         "h100,h200,b200", "--gpus",      "16",        "--tokens",       "1B",
                         "--price",        "2,2,5 USD/h", "--power",   "700,1000,700 W", "--json"}))
          .at("points");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[1].at("usdPerGpuHour"), 2);
  EXPECT_EQ(points[2].at("usdPerGpuHour"), 5);
}

// What fails more often needs more; no MTBF answers for another.
TEST_F(WhatifCommand, EveryMtbfHasItsAnswer) {
  const std::vector<std::string> question = {"--gpus",
                                             "2,8",
                                             "--tokens",
                                             "1M",
                                             "--price",
                                             "2 USD/h",
                                             "--mtbf",
                                             "1 d,5 y",
                                             "--restart",
                                             "0 min",
                                             "--repair",
                                             "1 d",
                                             "--spares",
                                             "1",
                                             "--budget",
                                             "5 MUSD",
                                             "--deadline",
                                             "999 y",
                                             "--checkpoint-bandwidth",
                                             "1 GB/s"};
  std::vector<std::string> args = question;
  args.push_back("--json");
  const nlohmann::json answer = jsonOf(whatif(args));
  for (const char* limits : {"deadlines", "budgets"}) {
    const nlohmann::json& all = answer.at(limits);
    ASSERT_EQ(all.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(all[i].at("gpuMeanBetweenSeconds"), i == 0 ? 86400 : 5 * 365 * 86400);
      EXPECT_EQ(all[i].at("usdPerGpuHour"), 2);
      EXPECT_EQ(all[i].at("refined").at("point").at("failures").at("gpuMeanBetweenSeconds"),
                all[i].at("gpuMeanBetweenSeconds"));
    }
  }
  const Outcome table = whatif(question);
  expectSuccess(table);
  for (const char* part :
       {"MTBF 24.0 h: ", "MTBF 5 y: ", " spare node", "under the same conditions"})
    EXPECT_THAT(table.out, HasSubstr(part));
}

// As `plan --for` says, at every point.
TEST_F(WhatifCommand, ForIsThatOfPlan) {
  const std::vector<std::string> base = {"--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus",
                                         "16",      "--batch",   "64",        "--seq",    "4096",
                                         "--json",  "--for",     "torchtitan"};
  const auto run = [&](const char* command) {
    std::vector<std::string> args = {command};
    args.insert(args.end(), base.begin(), base.end());
    return jsonOf(runTrireme(args));
  };
  const nlohmann::json point = run("whatif").at("points")[0], alone = run("plan");
  EXPECT_EQ(point.at("stepSeconds"), alone.at("estimate").at("stepSeconds"));
  EXPECT_THAT(point.at("plan").get<std::string>(), HasSubstr("sharded parameters"));
  expectRefusal(whatif({"--for", "torchtitan"}), 1, {"torchtitan cannot express model"});
  expectRefusal(runTrireme({"whatif", "--model", "llama3-8b", "--cluster", "dgx-h100", "--batch",
                            "64", "--seq", "4096", "--for", "deepspeed", "--tp", "2"}),
                1, {"DeepSpeed's JSON cannot express tp 2"});
}

// One device has nobody to share with, two share what is faster.
TEST_F(WhatifCommand, ForPlansPointsOfOneDeviceAndOfSeveral) {
  const auto run = [&](const char* command, const char* gpus) {
    return runTrireme({command, "--model", "llama3-8b", "--cluster", "gb200-nvl72", "--seq", "512",
                       "--batch", "64", "--for", "torchtitan", "--json", "--gpus", gpus});
  };
  const nlohmann::json points = jsonOf(run("whatif", "1,2")).at("points");
  for (const size_t i : {0, 1}) {
    const nlohmann::json alone = jsonOf(run("plan", i == 0 ? "1" : "2"));
    ASSERT_TRUE(points[i].at("fits").get<bool>()) << points[i].dump();
    EXPECT_EQ(points[i].at("stepSeconds"), alone.at("estimate").at("stepSeconds"));
    EXPECT_EQ(points[i].at("plan"), alone.at("summary"));
  }
  EXPECT_THAT(points[1].at("plan").get<std::string>(), HasSubstr("sharded gradients"));
}

// 5 ranks that no two hosts of 4 hold alike are one on each of five, as export launches them: all
// hosts of 20 devices are in use, and none of them is a spare.
TEST_F(WhatifCommand, HostsWithOneRankAreInUse) {
  const nlohmann::json point =
      jsonOf(
          runTrireme({"whatif",  "--model",   "llama2-13b", "--cluster", "gb200-nvl72",
                      "--gpus",  "20",        "--batch",    "5",         "--seq",
                      "512",     "--for",     "deepspeed",  "--tokens",  "10B",
                      "--price", "2USD/h",    "--mtbf",     "1y",        "--checkpoint-bandwidth",
                      "10GB/s",  "--restart", "10min",      "--repair",  "5d",
                      "--json"}))
          .at("points")[0];
  EXPECT_EQ(point.at("gpusUsed"), 5);
  EXPECT_EQ(point.at("nodesUsed"), 5);
  const nlohmann::json& failures = point.at("failures");
  EXPECT_EQ(failures.at("spareNodes"), failures.at("spareNodesBought"));
}

TEST_F(WhatifCommand, NetworksAreInBitsHoweverTheyAreWritten) {
  for (const char* rate : {"400 Gbit/s", "400Gb/s", "400 Gbps", "50 GB/s", "0.4 Tbps"})
    EXPECT_EQ(jsonOf(runTrireme({"whatif", "--model", "llama2-7b", "--gpu", "h100", "--gpus", "16",
                                 "--stack", "nemo", "--batch", "128", "--seq", "4096",
                                 "--inter-node", rate, "--json"}))
                  .at("points")[0]
                  .at("interNodeBytesPerSecond"),
              50e9)
        << rate;
}

// One tier within a host is no network.
TEST_F(WhatifCommand, WhereThereIsNoNetworkNoneIsSaid) {
  EXPECT_THAT(whatif({"--gpus", "2"}).out, Not(HasSubstr("network")));
  const std::string hosts = write("hosts.yaml", "devices_per_host: 1\n" + readAll(cluster));
  const Outcome outcome = runTrireme({"whatif", "--model", model, "--cluster", hosts, "--train",
                                      training, "--gpus", "2", "--inter-node", "32,64 Gbit/s"});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("32 Gbit/s"));
}

TEST_F(WhatifCommand, NothingThatIsAskedForIsLeftOutInSilence) {
  expectRefusal(whatif({"--tokens", "1B", "--deadline", "1 d", "--csv"}), 2,
                {"--csv", "--deadline"});
  expectRefusal(whatif({"--diff", "dgx-a100", "dgx-h100"}), 1,
                {"--diff of two clusters names them: leave --cluster away"});
  expectRefusal(
      runTrireme({"whatif", "--model", "llama2-7b", "--cluster", "dgx-h100", "--batch", "128",
                  "--seq", "4096", "--diff", "nemo", "megatron-core", "--stack", "nemo"}),
      1, {"--diff of two stacks names them: leave --stack away"});
}

TEST_F(WhatifCommand, AResumedSweepIsTheUninterruptedOne) {
  const std::string whole = sweep({}, "whole.csv");
  // Stopped after every byte, in steps that are no divisor of a record's length.
  for (size_t length = 0; length < whole.size(); length += 997) {
    write("part.csv", whole.substr(0, length));
    const Outcome outcome =
        whatif({"--gpus", "1..8", "--batch", "8,16", "--csv", "--resume", path("part.csv")});
    expectSuccess(outcome);
    EXPECT_EQ(readAll(path("part.csv")), whole) << length;
    EXPECT_EQ(outcome.out, whole);
  }
}

TEST_F(WhatifCommand, AnsweredPointsAreNotPlannedAgain) {
  std::string whole = sweep({}, "whole.csv");
  // A mark that no planner would set comes through.
  const size_t at = whole.find("microbatch");
  whole.replace(at, 10, "MICROBATCH");
  write("marked.csv", whole);
  const Outcome outcome =
      whatif({"--gpus", "1..8", "--batch", "8,16", "--csv", "--resume", path("marked.csv")});
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("MICROBATCH"));
}

TEST_F(WhatifCommand, ARowWithTightMemoryIsMarked) {
  std::string whole = sweep({}, "whole.csv");
  const std::vector<std::string> again = {"--gpus", "1..8",     "--batch",
                                          "8,16",   "--resume", path("tight.csv")};
  write("tight.csv", whole);
  EXPECT_EQ(whatif(again).out.find('!'), std::string::npos);
  const size_t at = whole.find(",no,");  // only that, where plans fit
  ASSERT_NE(at, std::string::npos);
  write("tight.csv", whole.replace(at, 4, ",yes,"));
  const Outcome outcome = whatif(again);
  expectSuccess(outcome);
  EXPECT_THAT(outcome.out, HasSubstr(" !\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("memory        ! memory is tight, the reserve is an estimate: 1 of 8\n"));
}

TEST_F(WhatifCommand, EconomicsAreComputedAnewFromAFile) {
  sweep({}, "plain.csv");
  const Outcome outcome = whatif({"--gpus", "1..8", "--batch", "8,16", "--tokens", "1M", "--price",
                                  "2 USD/h", "--json", "--resume", path("plain.csv")});
  EXPECT_GT(jsonOf(outcome).at("points")[0].at("costUsd"), 0);
}

// 16 MiB are the most of other files.
TEST_F(WhatifCommand, ASweepIsReadHoweverLongItIs) {
  const std::string answers = sweep({}, "long.csv");
  const std::string record = answers.substr(answers.find('\n') + 1);
  std::string text = answers;
  while (text.size() <= (size_t{16} << 20)) text += record;
  write("long.csv", text);
  expectSuccess(whatif({"--gpus", "1..8", "--batch", "8,16", "--resume", path("long.csv")}));
}

TEST_F(WhatifCommand, MorePointsOrRowsThanMemoryHoldsAreRefused) {
  expectRefusal(whatif({"--gpus", "1..2000:1", "--batch", "1..2000:1"}), 1,
                {"the flags make 4000000 points, more than 1000000: give shorter ranges"});
  expectRefusal(whatif({"--gpus", "1..2000:1", "--tokens", "1B..2000B:1B"}), 1,
                {"2000 points under 2000 combinations of tokens", "more than 1000000 rows"});
}

TEST_F(WhatifCommand, FilesOfOtherQuestionsAreRefused) {
  sweep({}, "sweep.csv");
  expectRefusal(whatif({"--gpus", "1..8", "--batch", "8,16", "--vocab-multiple", "64", "--resume",
                        path("sweep.csv")}),
                1, {"sweep.csv:2:1", "another question"});
  expectRefusal(whatif({"--gpus", "1..4", "--batch", "8,16", "--resume", path("sweep.csv")}), 1,
                {"sweep.csv:5:1", "8 GPUs", "not among the points"});
  expectRefusal(whatif({"--gpus", "1..8", "--resume", write("other.csv", "a,b\n1,2\n")}), 1,
                {"other.csv:1:1", "not a sweep"});
  // Of its first row, of one GPU: half the time and as many tokens per second.
  std::string changed = readAll(path("sweep.csv"));
  const nlohmann::json points = jsonOf(whatif({"--gpus", "1..8", "--batch", "8,16", "--json"}));
  const double step = points.at("points")[0].at("stepSeconds");
  changed = replaced(changed, "," + fmt::format("{}", step) + ",", fmt::format(",{},", step / 2));
  expectRefusal(whatif({"--gpus", "1..8", "--batch", "8,16", "--resume", write("c.csv", changed)}),
                1, {"c.csv:2:1: step x tokens/s is", "the row was changed"});
  const std::string notes = write("notes.txt", "notes without a line feed");
  expectRefusal(whatif({"--gpus", "1..8", "--resume", notes}), 1,
                {"notes.txt: not a sweep of trireme whatif"});
  EXPECT_EQ(readAll(notes), "notes without a line feed");
  expectRefusal(whatif({"--gpus", "1..8", "--resume", path("missing.csv")}), 1,
                {"missing.csv: cannot read"});
  expectRefusal(whatif({"--gpus", "1..8", "-o", path("no/where.csv")}), 1, {"no"});
}

TEST_F(WhatifCommand, AnEarlierSweepIsNotReplacedUnlessForced) {
  const std::string before = sweep({}, "sweep.csv"), file = path("sweep.csv");
  expectRefusal(whatif({"--gpus", "2", "-o", file}), 1,
                {"sweep.csv: holds the answers of a sweep", "--resume", "--force"});
  expectRefusal(plan({"-o", file}), 1, {"sweep.csv: holds the answers of trireme whatif"});
  expectRefusal(whatif({"--gpus", "2", "--report", file}), 1, {"sweep.csv", "give another file"});
  EXPECT_EQ(readAll(file), before);
  expectSuccess(whatif({"--gpus", "2", "--force", "-o", file}));
  EXPECT_NE(readAll(file), before);
  expectRefusal(whatif({"--gpus", "2", "--force"}), 2, {"--force"});
  // What is no sweep is kept, too; one that was stopped before its first answer is nothing.
  const std::string notes = write("notes.csv", "what I measured\n");
  expectRefusal(whatif({"--gpus", "2", "-o", notes}), 1,
                {"notes.csv: is there, and no sweep of trireme whatif", "--force"});
  EXPECT_EQ(readAll(notes), "what I measured\n");
  expectSuccess(whatif({"--gpus", "2", "--force", "-o", notes}));
  const std::string header = before.substr(0, before.find('\n') + 1);
  expectSuccess(whatif({"--gpus", "2", "-o", write("empty.csv", header)}));
}

TEST_F(WhatifCommand, ChoicesHoldAtAllPoints) {
  const std::vector<std::string> pins = {"--tp", "2", "--recompute", "full"};
  std::vector<std::string> args = {"--gpus", "2..8", "--json"};
  args.insert(args.end(), pins.begin(), pins.end());
  const nlohmann::json answer = jsonOf(whatif(args));
  for (const nlohmann::json& point : answer.at("points")) {
    std::vector<std::string> alone = {"--json", "--gpus",
                                      std::to_string(point.at("gpus").get<int>())};
    alone.insert(alone.end(), pins.begin(), pins.end());
    EXPECT_EQ(point.at("stepSeconds"), jsonOf(plan(alone)).at("estimate").at("stepSeconds"));
  }
  // A choice that no plan can obey is why the points have none; another choice is another question.
  EXPECT_THAT(whatif({"--gpus", "2..8", "--tp", "3"}).err, HasSubstr("tp 3"));
  sweep({}, "free.csv");
  expectRefusal(
      whatif({"--gpus", "1..8", "--batch", "8,16", "--tp", "2", "--resume", path("free.csv")}), 1,
      {"another question"});
  EXPECT_THAT(whatif({"--gpus", "2..8", "--recompute-layers", "2"}).err, HasSubstr("(E4)"));
  expectRefusal(whatif({"--gpus", "1..8", "--batch", "8,16", "--recompute-layers", "2", "--resume",
                        path("free.csv")}),
                1, {"another question"});
  for (const std::string flag : {"--max-virtual-stages", "--dp-shard"})
    expectRefusal(
        whatif({"--gpus", "1..8", "--batch", "8,16", flag, "1", "--resume", path("free.csv")}), 1,
        {"another question"});
  expectRefusal(whatif({"--gpus", "2", "--tp", "0"}), 2, {"--tp: must be at least 1"});
}

// A deadline that 8 devices meet and 2 do not: fewer than 8 are asked about.
TEST_F(WhatifCommand, DeadlinesAreAnsweredBetweenThePoints) {
  const nlohmann::json all =
      jsonOf(whatif({"--gpus", "1..8:1", "--tokens", "1M", "--price", "2 USD/h", "--json"}))
          .at("points");
  const double deadline = all[3].at("wallSeconds");  // of four
  const std::vector<std::string> question = {
      "--gpus",  "2,8",     "--tokens",   "1M",
      "--price", "2 USD/h", "--deadline", std::to_string(deadline * 1.000001) + " s"};
  std::vector<std::string> args = question;
  args.push_back("--json");
  const nlohmann::json answer = jsonOf(whatif(args));
  ASSERT_EQ(answer.at("points").size(), 2u);
  const nlohmann::json refined = answer.at("deadlines")[0].at("refined");
  EXPECT_TRUE(answer["points"][0].contains("onFront"));
  EXPECT_FALSE(refined.at("point").contains("onFront"));
  size_t fewest = 0;
  while (all[fewest].at("wallSeconds") > deadline * 1.000001) ++fewest;
  EXPECT_EQ(refined.at("point").at("gpus"), all[fewest].at("gpus"));
  EXPECT_LE(refined.at("point").at("wallSeconds"), deadline * 1.000001);
  const Outcome table = whatif(question);
  expectSuccess(table);
  EXPECT_THAT(table.out,
              HasSubstr("fewest devices: " +
                        std::to_string(refined.at("point").at("gpus").get<int>()) + " GPUs"));
}

TEST_F(WhatifCommand, NothingWithAPlanIsAFailure) {
  expectRefusal(whatif({"--gpus", "16,32"}), 1, {"no point of 2 has a plan", "has 8 devices"});
}

// Where there is no plan there is no zero either, and the file is gone on with.
TEST_F(WhatifCommand, CellsOfAPointWithoutAPlanAreEmpty) {
  const std::vector<std::string> asked = {
      "whatif",  "--model",       "mpt-30b", "--cluster", "dgx-a100-40gb",
      "--stack", "composer-fsdp", "--batch", "512",       "--seq",
      "2048",    "--gpus",        "8,24",    "--tokens",  "1e9"};
  std::vector<std::string> first = asked, again = asked;
  first.insert(first.end(), {"-o", path("holes.csv")});
  again.insert(again.end(), {"--csv", "--resume", path("holes.csv")});
  expectSuccess(runTrireme(first));
  const std::string text = readAll(path("holes.csv"));
  const size_t begin = text.find(",no,\"no plan fits in memory");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string row = text.substr(begin, text.find('\n', begin) - begin);
  const std::string behind = row.substr(row.rfind('"') + 1);
  EXPECT_EQ(behind.find_first_not_of(','), behind.find("1000000000")) << row;
  EXPECT_EQ(runTrireme(again).out, text);
  const Outcome table = runTrireme(asked);
  expectSuccess(table);
  EXPECT_THAT(table.out, ::testing::Not(HasSubstr("USD")));  // no price is given
}

// What `trireme plan` says of the same question, word for word.
TEST_F(WhatifCommand, WhatWouldGiveAPlanIsSaidAsByPlan) {
  const auto ask = [](const std::string& command, const std::string& gpus) {
    return runTrireme({command, "--model", "gpt2-124m", "--cluster", "dgx-a100", "--stack",
                       "megatron-core", "--batch", "64", "--seq", "1024", "--overlap-reductions",
                       "on", "--gpus", gpus});
  };
  const Outcome planned = ask("plan", "8"), swept = ask("whatif", "8");
  expectRefusal(planned, 1,
                {"error: overlapped reductions are a choice of Trireme's own programs: stack "
                 "'megatron-core' runs beside computation what its profile says; nearest: none "
                 "pinned; would work, fewest devices first: ",
                 "overlap reductions not pinned: ", "stack trireme (now: megatron-core): "});
  expectRefusal(swept, 1, {});
  EXPECT_EQ(swept.err, planned.err);
  expectRefusal(ask("whatif", "8,16"), 1,
                {"error: no point of 2 has a plan; the first: " + planned.err.substr(7)});
}

TEST_F(WhatifCommand, BadValuesAreRefusedWithWhatIsNear) {
  const auto refused = [&](const std::vector<std::string>& args,
                           const std::vector<std::string>& parts) {
    expectRefusal(whatif(args), 2, parts);
  };
  refused({"--gpus", ""}, {"--gpus: expected a value, a list or a range such as '64..4096'"});
  refused({"--gpus", "64.."}, {"--gpus: expected a value"});
  refused({"--gpus", "..64"}, {"--gpus: expected a value"});
  refused({"--gpus", "64,,128"}, {"--gpus: expected a value"});
  refused({"--gpus", "4096..64"}, {"runs backwards; nearest: 64..4096"});
  refused({"--gpus", "64..128:100"}, {"step 100 is longer than the range 64..128"});
  refused({"--gpus", "1..1000000:1"}, {"more than 10000 values"});
  refused({"--gpus", "0..8"}, {"--gpus: must be at least 1, got 0"});
  refused({"--gpus", "64 GiB"}, {"--gpus: expected a whole number, got '64 GiB'"});
  refused({"--minus-nodes", "4..1"}, {"--minus-nodes: the range 4..1 runs backwards"});
  refused({"--inter-node", "200"}, {"'200' has no unit", "400 Gbit/s"});
  refused({"--inter-node", "200..1600 GiB"}, {"unknown unit 'GiB'; did you mean 'GiB/s'?"});
  refused({"--inter-node", "200 W"}, {"unknown unit 'W'"});
  refused({"--inter-node", "-5 GB/s"}, {"--inter-node: must be above 0, got '-5 GB/s'"});
  refused({"--tokens", "1B", "--price", "-2 USD/h"}, {"--price: must be at least 0"});
  refused({"--tokens", "1B", "--price", "5000 USD/h"}, {"one device and hour, 1000 USD/h at most"});
  refused({"--tokens", "1B", "--price", "2.5 USD"}, {"unknown unit 'USD'; did you mean 'USD/h'?"});
  refused({"--tokens", "1B", "--price", "cheap"}, {"expected a number such as '2.5 USD/h'"});
  refused({"--tokens", "15X"}, {"unknown unit 'X'"});
  refused({"--tokens", "0"}, {"--tokens: must be at least 1"});
  refused({"--tokens", "1B", "--deadline", "30 D"}, {"unknown unit 'D'; did you mean"});
  refused({"--price", "2 USD/h"}, {"--price", "--tokens"});
  refused({"--tokens", "1B", "--budget", "5 MUSD"}, {"--budget", "--price"});
  refused({"--gpu", "h10"}, {"unknown GPU 'h10'; did you mean 'h100'?"});
  refused({"--gpu", "h100,"}, {"expected names between commas"});
  refused({"--csv", "--json"}, {"--csv"});
  expectRefusal(
      runTrireme({"whatif", "--model", model, "--batch", "8", "--gpu", "rtx-4090,rtx4090"}), 1,
      {"--gpu: 'rtx-4090' and 'rtx4090' are the same system, rtx4090: name it once"});
  expectRefusal(whatif({"--tokens", "1B", "--mtbf", "5 y", "--checkpoint-bandwidth", "1 GB/s",
                        "--restart", "0 s", "--repair", "1 d", "--spares", "99999999"}),
                1, {"--spares: must be at most 16777216"});
  expectRefusal(whatif({"--tokens", "1B", "--mtbf", "5 y"}), 1, {"--checkpoint-bandwidth"});
  expectRefusal(runTrireme({"whatif", "--model", model, "--batch", "8"}), 1,
                {"give --cluster, or --gpu"});
}

TEST_F(WhatifCommand, WorthIsOfOnePoint) {
  const std::vector<std::string> args = {"--gpus",  "4",       "--tokens", "1B",
                                         "--price", "1 USD/h", "--worth"};
  const Outcome outcome = whatif(args);
  expectSuccess(outcome);
  for (const char* part : {"10 % more matmul rate", "TFLOP/s", "USD a unit", "GiB"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  expectRefusal(whatif({"--gpus", "4,8", "--worth"}), 1, {"--worth looks around one point", "2"});
  expectRefusal(whatif({"--gpus", "4", "--tokens", "1B", "--price", "1..4 USD/h", "--worth"}), 1,
                {"under one scenario: --price has 3 values"});
  expectSuccess(whatif({"--gpus", "4", "--tokens", "1B", "--price", "2,2 USD/h", "--worth"}));
}

// What is asked of a deadline and of a budget is answered as without --worth, in the page as well.
TEST_F(WhatifCommand, WorthKeepsWhatIsAskedOfTimeAndMoney) {
  std::vector<std::string> args = {"--gpus",  "4",       "--tokens", "1B",       "--deadline",
                                   "30000 d", "--price", "1 USD/h",  "--budget", "1 GUSD"};
  const Outcome plain = whatif(args);
  args.insert(args.end(), {"--worth", "--report", path("worth.html")});
  const Outcome worth = whatif(args);
  expectSuccess(worth);
  EXPECT_THAT(plain.out, HasSubstr("fewest devices: "));
  EXPECT_THAT(plain.out, HasSubstr("the fastest: "));
  EXPECT_TRUE(worth.out.starts_with(plain.out)) << worth.out;
  EXPECT_THAT(readAll(path("worth.html")), HasSubstr("fewest devices: "));
}

}  // namespace
}  // namespace trireme::cli
