// Only with a code generator: there is nothing to run without one.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/run/folder_lock.h"
#include "cli/run/training_loop.h"
#include "ir/program/bundle.h"
#include "runtime/data/token_files.h"
#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunCommand : public CommandTest {
 protected:
  // The bytes of a file of the bundle, cut or changed.
  void truncate(const std::string& file) const { fs::resize_file(file, fs::file_size(file) / 2); }
  void flipByte(const std::string& file) const {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(fs::file_size(file) / 2));
    const auto byte = static_cast<char>(stream.peek() ^ 0x10);
    stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
    stream.put(byte);
  }
};

// A file system that goes with the object, however the test ends.
struct Mounted {
  std::string folder;
  ~Mounted() { EXPECT_EQ(std::system(("umount '" + folder + "'").c_str()), 0); }
};

const std::vector<std::string> kEightRanks = {"--tp", "2", "--pp",         "2",
                                              "--dp", "2", "--microbatch", "2"};

// Files may have any name, and JSON is UTF-8.
TEST_F(RunCommand, NamesThatAreNoTextAreReplacedInJson) {
  const std::string bundle = compile("od\xff", {"--gpus", "1"}), saved = path("sa\xffved");
  const Outcome outcome = run(bundle, {"--steps", "1", "--json", "--save", saved});
  expectSuccess(outcome);
  EXPECT_THAT(nlohmann::json::parse(outcome.out).dump(), HasSubstr("sa\xef\xbf\xbdved"));
}

TEST_F(RunCommand, ResumingGivesTheLossesOfAnUninterruptedRun) {
  const std::string bundle = compile("eight", kEightRanks);
  expectSuccess(run(bundle, {"--steps", "6", "--metrics", path("whole.jsonl")}));
  expectSuccess(
      run(bundle, {"--steps", "3", "--save", path("ckpt"), "--metrics", path("part.jsonl")}));
  const Outcome rest =
      run(bundle, {"--steps", "6", "--resume", path("ckpt"), "--metrics", path("part.jsonl")});
  expectSuccess(rest);
  EXPECT_THAT(rest.err, HasSubstr("resuming after step 3"));
  EXPECT_THAT(rest.err, ::testing::Not(HasSubstr("instead of")));
  const std::vector<double> whole = lossesIn(path("whole.jsonl"));
  EXPECT_EQ(whole.size(), 6u);
  EXPECT_EQ(lossesIn(path("part.jsonl")), whole);  // to the last bit
}

// The least scale is one that overflows f16 whatever the gradients are.
TEST_F(RunCommand, ARunWhoseEveryStepIsSkippedFails) {
  training = write("scaled.yaml", replaced(kTinyTraining, "fp32", "fp16") +
                                      "initial_loss_scale: 1e12\nmin_loss_scale: 1e12\n");
  const std::string bundle = compile("scaled", {"--gpus", "1"});
  expectRefusal(run(bundle, {"--steps", "2"}), 1,
                {"all 2 steps were skipped",
                 "gradients overflow f16 even with min_loss_scale, 1000000000000"});
  expectSuccess(run(bundle, {"--steps", "1"}));  // one batch says little
  // One that goes on is not waited for.
  const std::string metrics = path("steps.jsonl");
  expectRefusal(run(bundle, {"--steps", "1000", "--metrics", metrics, "--save", path("ckpt"),
                             "--save-every", "70"}),
                1,
                {"steps 1 to 100 were all skipped, and what follows would hardly be trained",
                 "even with min_loss_scale, 1000000000000",
                 "the newest checkpoint is " + path("ckpt"), "00000100"});
  EXPECT_EQ(lossesIn(metrics).size(), 100u);
  // A larger scale than the least may still become one that does not.
  training =
      write("falls.yaml", replaced(kTinyTraining, "fp32", "fp16") + "initial_loss_scale: 1e12\n");
  const Outcome falls = run(compile("falls", {"--gpus", "1"}), {"--steps", "2"});
  expectSuccess(falls);
  EXPECT_THAT(falls.out, HasSubstr(", 2 skipped"));
}

// They are the user's to change, knowingly.
TEST_F(RunCommand, ResumingWithOtherSettingsSaysWhich) {
  expectSuccess(run(compile("before", {"--gpus", "1"}), {"--steps", "2", "--save", path("ckpt")}));
  training = write("other.yaml", replaced(replaced(kTinyTraining, "fp32", "fp16"), "1e-3", "5e-4") +
                                     "clip_norm: 0.5\n");
  const Outcome rest =
      run(compile("after", {"--gpus", "1"}), {"--steps", "4", "--resume", path("ckpt")});
  expectSuccess(rest);
  EXPECT_THAT(rest.err,
              HasSubstr("note: from step 3 on this run has compute_dtype f16 instead of f32, "
                        "learning_rate 0.0005 instead of 0.001, clip_norm 0.5 instead of 1\n"));
  // How losses are scaled is a setting of runs that scale them.
  expectSuccess(run(path("after.bundle"), {"--steps", "2", "--save", path("scaled")}));
  training = write("scales.yaml", readAll(training) + "loss_scale_window: 7\nmin_loss_scale: 2\n");
  const Outcome scaled =
      run(compile("scales", {"--gpus", "1"}), {"--steps", "3", "--resume", path("scaled")});
  expectSuccess(scaled);
  EXPECT_THAT(scaled.err, HasSubstr("note: from step 3 on this run has loss_scale_window 7 instead "
                                    "of 2000, min_loss_scale 2 instead of 1\n"));
}

// The first batch once more, after a step of training on it.
TEST_F(RunCommand, StartsFromExportedWeights) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string first = path("first.jsonl"), second = path("second.jsonl");
  expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt"), "--metrics", first}));
  const Outcome exported =
      runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path("hf")});
  expectSuccess(exported);
  EXPECT_THAT(exported.out, HasSubstr("hf/model.safetensors, "));
  const Outcome again =
      run(bundle, {"--steps", "1", "--init-from", path("hf"), "--metrics", second});
  expectSuccess(again);
  EXPECT_THAT(again.err, HasSubstr("starting from the weights of "));
  EXPECT_LT(lossesIn(second)[0], lossesIn(first)[0]);
  // The folder is a model of its own, of the same size.
  expectSuccess(runTrireme({"plan", "--model", path("hf/config.json"), "--cluster", cluster,
                            "--train", training, "--gpus", "1"}));

  expectRefusal(run(bundle, {"--steps", "1", "--init-from", path("none")}), 1,
                {"none: neither a safetensors file nor a folder with model.safetensors"});
  expectRefusal(
      run(bundle, {"--steps", "1", "--init-from", path("ckpt/step-00000001.safetensors")}), 1,
      {"step-00000001.safetensors: a checkpoint of Trireme, whose training --resume continues",
       "export-weights"});
  const std::vector<std::string> both = {"--steps",    "1",           "--new-data", "--resume",
                                         path("ckpt"), "--init-from", path("hf")};
  expectRefusal(run(bundle, both), 1, {"--init-from and --resume are two beginnings"});
  // A queued job begins with the weights until something is saved.
  const auto job = [&](const char* steps) {
    return run(bundle, {"--steps", steps, "--save", path("job"), "--resume", path("job"),
                        "--init-from", path("hf")});
  };
  EXPECT_THAT(job("1").err, HasSubstr("starting from the weights of "));
  const Outcome goesOn = job("2");
  expectSuccess(goesOn);
  EXPECT_THAT(goesOn.err, ::testing::AllOf(HasSubstr("resuming after step 1"),
                                           Not(HasSubstr("starting from the weights"))));
  expectRefusal(runTrireme({"export-weights", path("ckpt"), "--model", model, "--precision", "fp64",
                            "-o", path("other")}),
                2, {"--precision", "unknown value 'fp64'", "fp32"});
  const Outcome help = runTrireme({"export-weights", "--help"});
  EXPECT_THAT(help.out, HasSubstr("fp32|bf16|fp16"));
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("fp8")));
  expectRefusal(
      runTrireme({"export-weights", path("ckpt"), "--model", "gpt2-124m", "-o", path("other")}), 1,
      {"the checkpoint is of another model"});
  // A byte of the data, which the checksums cover.
  flipByte(path("ckpt/step-00000001.safetensors"));
  expectRefusal(runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path("other")}),
                1, {"is corrupt"});
  expectRefusal(runTrireme({"export-weights", path("hf/model.safetensors"), "--model", model, "-o",
                            path("other")}),
                1, {"a safetensors file, but not a Trireme checkpoint"});
  EXPECT_FALSE(fs::exists(path("other")));
  // The same shapes with other heads.
  std::string config = readAll(path("hf/config.json"));
  config.replace(config.find("\"n_head\": 4"), 11, "\"n_head\": 2");
  write("hf/config.json", config);
  expectRefusal(run(bundle, {"--steps", "1", "--init-from", path("hf")}), 1,
                {"config.json is of another model: heads: 2, the bundle's has heads: 4"});
}

// A key that only one of them has shifts no other.
TEST_F(RunCommand, AnotherModelsConfigIsRefusedWithTheKeyThatDiffers) {
  model = write("llama.yaml", replaced(kTinyModel, "family: gpt", "family: llama") +
                                  "norm_epsilon: 1e-5\nrope_theta: 10000\nqkv_bias: false\n");
  const std::string bundle = compile("llama", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt")}));
  expectSuccess(runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path("hf")}));
  expectSuccess(run(bundle, {"--steps", "1", "--init-from", path("hf")}));
  std::string config = readAll(path("hf/config.json"));
  config.insert(config.find('{') + 1, R"("rope_scaling": {"type": "linear", "factor": 2.0},)");
  write("hf/config.json", config);
  expectRefusal(
      run(bundle, {"--steps", "1", "--init-from", path("hf")}), 1,
      {"config.json is of another model: rope_scaling: ", ", the bundle's has no rope_scaling"});
}

// Without a handler the signal would end the run without a word.
TEST_F(RunCommand, AFileAboveTheLimitIsAnError) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), err = path("err");
  const auto errorOf = [&](const std::string& limit) {
    const std::string command = "ulimit -f " + limit + "; '" + std::string(TRIREME_BINARY) +
                                "' run '" + bundle + "' --data '" + data + "' --steps 1 --save '" +
                                path("a") + "' 2> '" + err + "'";
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
    return readAll(err);
  };
  EXPECT_THAT(errorOf("256"), HasSubstr("beyond the limit (ulimit -f): File too large"));
  EXPECT_THAT(errorOf("8"), HasSubstr("in memory: File too large; is there a limit (ulimit -f)?"));
}

// Four steps in the file, the checkpoint after two: the file ends up with every step once.
TEST_F(RunCommand, ResumingNeverRepeatsAStepInTheMetrics) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), metrics = path("m.jsonl");
  expectSuccess(run(
      bundle, {"--steps", "4", "--save", path("ckpt"), "--save-every", "2", "--metrics", metrics}));
  const std::string early = path("ckpt/step-00000002.safetensors");
  const Outcome again = run(bundle, {"--steps", "5", "--resume", early, "--metrics", metrics});
  expectSuccess(again);
  EXPECT_THAT(again.err, HasSubstr("m.jsonl: 2 lines after step 2 removed"));
  std::istringstream lines(readAll(metrics));
  std::vector<int> steps;
  for (std::string line; std::getline(lines, line);)
    steps.push_back(nlohmann::json::parse(line).at("step"));
  EXPECT_THAT(steps, ::testing::ElementsAre(1, 2, 3, 4, 5));
  const std::string notes = write("notes.txt", "my notes\n");
  expectRefusal(run(bundle, {"--steps", "5", "--resume", early, "--metrics", notes}), 1,
                {"notes.txt: line 1 is no line of metrics"});
  EXPECT_EQ(readAll(notes), "my notes\n");
  // Nor is a line that no run can have been writing.
  const std::string unended = write("unended.txt", "my notes");
  expectRefusal(run(bundle, {"--steps", "5", "--resume", early, "--metrics", unended}), 1,
                {"unended.txt: line 1 is no line of metrics"});
  EXPECT_EQ(readAll(unended), "my notes");
  const std::string checkpoint = readAll(early);
  expectRefusal(
      run(bundle, {"--steps", "5", "--resume", path("ckpt"), "--trace", early}), 1,
      {"--trace: ", "step-00000002.safetensors is named like a checkpoint; give another name"});
  EXPECT_EQ(readAll(early), checkpoint);
}

TEST_F(RunCommand, EightRanksAndOneAgreeAndResumeEachOther) {
  const std::string eight = compile("eight", kEightRanks);
  const std::string one = compile("one", {"--gpus", "1", "--microbatch", "2"});
  expectSuccess(run(eight, {"--steps", "6", "--metrics", path("eight.jsonl")}));
  expectSuccess(run(one, {"--steps", "3", "--save", path("ckpt"), "--metrics", path("one.jsonl")}));
  expectSuccess(run(eight, {"--steps", "6", "--resume", path("ckpt/step-00000003.safetensors"),
                            "--metrics", path("one.jsonl")}));
  const std::vector<double> a = lossesIn(path("eight.jsonl")), b = lossesIn(path("one.jsonl"));
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * a[i]) << "step " << i;
}

TEST_F(RunCommand, MetricsSummaryJsonAndTraceAreComplete) {
  const std::string bundle = compile("tiny", {"--gpus", "2", "--pp", "2"});
  const Outcome summary = run(bundle, {"--steps", "5", "--summary", "--cluster", cluster,
                                       "--metrics", path("m.jsonl"), "--trace", path("t.json")});
  expectSuccess(summary);
  for (const char* part :
       {"pp 2", "1 to 5 on 2 ranks", "measured", "predicted", "arenas", "loss", "*"})
    EXPECT_THAT(summary.out, HasSubstr(part));
  const std::string metrics = readAll(path("m.jsonl"));
  const nlohmann::json first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  EXPECT_EQ(first.at("step"), 1);
  for (const char* key : {"loss", "grad_norm", "lr", "seconds", "tokens_per_second"})
    EXPECT_GT(first.at(key).get<double>(), 0) << key;
  EXPECT_FALSE(nlohmann::json::parse(readAll(path("t.json"))).empty());

  EXPECT_THAT(run(bundle, {"--steps", "1", "--cluster", cluster}).out,
              HasSubstr(" per step, predicted "));

  const Outcome json = run(bundle, {"--steps", "2", "--json"});
  expectSuccess(json);
  const nlohmann::json report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report.at("firstStep"), 1);
  EXPECT_EQ(report.at("losses").size(), 2u);
  EXPECT_GE(report.at("processPeakBytes"), report.at("arenaBytes"));
}

TEST_F(RunCommand, CheckpointsComeAtTheirStepsAndAtTheEnd) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "5", "--save", path("a/b"), "--save-every", "2"}));
  for (const char* name : {"step-00000002", "step-00000004", "step-00000005"})
    EXPECT_TRUE(fs::exists(path("a/b/") + name + ".safetensors")) << name;
  EXPECT_EQ(std::distance(fs::directory_iterator(path("a/b")), {}), 3);
}

// --resume takes the latest step of a folder: two runs in one folder would be taken for each other.
TEST_F(RunCommand, TheCheckpointsOfTwoRunsAreNotMixed) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), folder = path("a");
  expectSuccess(run(bundle, {"--steps", "4", "--save", folder, "--save-every", "2"}));
  expectRefusal(run(bundle, {"--steps", "1", "--save", folder}), 1,
                {"a: has a checkpoint of step 4, and this run begins after step 0", "--resume"});
  expectRefusal(run(bundle, {"--steps", "5", "--resume", folder + "/step-00000002.safetensors",
                             "--save", folder}),
                1, {"has a checkpoint of step 4, and this run begins after step 2"});
  expectSuccess(run(bundle, {"--steps", "5", "--resume", folder, "--save", folder}));
  EXPECT_TRUE(fs::exists(folder + "/step-00000005.safetensors"));
}

// A run holds the folder that it saves into for as long as it lives, and no longer.
TEST_F(RunCommand, ASecondRunIntoOneFolderIsRefusedWhileTheFirstLives) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), folder = path("a");
  const std::string left = "step-00000001.safetensors.99-0123abcd.tmp";
  {
    fs::create_directory(folder);
    const auto lock = FolderLock::take(folder);
    ASSERT_TRUE(lock.has_value() && *lock != nullptr);
    write("a/" + left, "half");
    expectRefusal(run(bundle, {"--steps", "1", "--save", folder}), 1,
                  {"--save " + folder + ": process " + std::to_string(getpid()) + " on ",
                   " is saving into this folder; give another"});
    EXPECT_TRUE(fs::exists(folder + "/" + left));  // perhaps of the run that lives
  }
  // What a killed run leaves stops nobody, and goes.
  write("a/.lock", "process 99 on nowhere");
  write("a/mine.tmp", "not a checkpoint's");
  expectSuccess(run(bundle, {"--steps", "1", "--save", folder}));
  EXPECT_FALSE(fs::exists(folder + "/" + left));
  EXPECT_FALSE(fs::exists(folder + "/.lock"));
  EXPECT_TRUE(fs::exists(folder + "/mine.tmp"));
  EXPECT_TRUE(fs::exists(folder + "/step-00000001.safetensors"));
}

// The end of a run whose folder was moved away leaves the lock of who has begun another one there.
TEST_F(RunCommand, ALockThatWasMovedAwayRemovesNoOther) {
  const std::string folder = path("ckpt");
  fs::create_directory(folder);
  auto first = FolderLock::take(folder);
  ASSERT_TRUE(first.has_value());
  fs::rename(folder, path("moved"));
  fs::create_directory(folder);
  const auto second = FolderLock::take(folder);
  ASSERT_TRUE(second.has_value());
  first->reset();
  EXPECT_TRUE(fs::exists(folder + "/.lock"));
  EXPECT_FALSE(FolderLock::take(folder).has_value());
}

TEST_F(RunCommand, NumberOfStepsIsNotGuessed) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectRefusal(run(bundle, {}), 1, {"number of steps is missing: give --steps"});
  training =
      write("scheduled.yaml", std::string(kTinyTraining) + "warmup_steps: 1\ndecay_steps: 2\n");
  expectSuccess(run(compile("scheduled", {"--gpus", "1"}), {"--metrics", path("m.jsonl")}));
  EXPECT_EQ(lossesIn(path("m.jsonl")).size(), 3u);
}

TEST_F(RunCommand, FlagsOfGpusAreRefusedForHosts) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectRefusal(run(bundle, {"--steps", "1", "--virtual-ranks"}), 1, {"virtual ranks share a GPU"});
  expectRefusal(run(bundle, {"--steps", "1", "--no-cuda-graphs"}), 1, {"CUDA graphs are for GPUs"});
  for (const char* value : {"on", "off"})
    expectRefusal(run(bundle, {"--steps", "1", "--time-matmuls", value}), 1,
                  {"--time-matmuls chooses cuBLASLt's algorithms on GPUs, and the bundle is for "
                   "hosts"});
}

TEST_F(RunCommand, DamagedBundlesAreRefusedByFile) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const auto withDamage = [&](const auto& damage) {
    const std::string copy = path("copy.bundle");
    fs::remove_all(copy);
    fs::copy(bundle, copy);
    damage(copy);
    return run(copy, {"--steps", "1"});
  };
  expectRefusal(run(path("none"), {"--steps", "1"}), 1, {"none"});
  expectRefusal(run(data, {"--steps", "1"}), 1, {"data.txt"});
  for (const char* file :
       {"program.bin", "kernels.json", "kernels.so", "plan.yaml", "manifest.json"}) {
    SCOPED_TRACE(file);
    const std::string name = file;
    // Half a manifest does not say how long it was.
    const std::string cutOff =
        name == "manifest.json" ? name + " is corrupted: not JSON" : name + " is truncated: ";
    expectRefusal(withDamage([&](auto& copy) { truncate(copy + "/" + name); }), 1, {cutOff});
    expectRefusal(withDamage([&](auto& copy) { flipByte(copy + "/" + name); }), 1,
                  {name + " is corrupted: "});
    expectRefusal(withDamage([&](auto& copy) { fs::remove(copy + "/" + name); }), 1,
                  {name, "No such file"});
  }
  expectRefusal(withDamage([&](auto& copy) {
                  nlohmann::json manifest = nlohmann::json::parse(readAll(copy + "/manifest.json"));
                  manifest["version"] = 999;
                  std::ofstream(copy + "/manifest.json") << manifest.dump();
                }),
                1, {"999", "newer"});
}

TEST_F(RunCommand, BundlesForAnotherProcessorAreRefused) {
  auto bundle = program::readBundle(compile("tiny", {"--gpus", "1"}));
  ASSERT_TRUE(bundle.has_value()) << bundle.error().message();
  bundle->target.cpuFeatures.push_back("avx99f");
  ASSERT_TRUE(program::writeBundle(*bundle, path("newer.bundle")).ok());
  expectRefusal(run(path("newer.bundle"), {"--steps", "1"}), 1,
                {"newer.bundle: ", "need CPU features that this machine lacks: avx99f"});
}

TEST_F(RunCommand, DamagedCheckpointsAreRefused) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt")}));
  const std::string good = path("ckpt/step-00000001.safetensors"), bad = path("bad.safetensors");
  const auto resumeFrom = [&](const std::string& checkpoint) {
    return run(bundle, {"--steps", "3", "--resume", checkpoint});
  };
  fs::copy(good, bad);
  truncate(bad);
  expectRefusal(resumeFrom(bad), 1, {"bad.safetensors: ", "truncated"});
  fs::resize_file(bad, 100);  // within the header
  expectRefusal(resumeFrom(bad), 1,
                {"bad.safetensors: truncated: the file ends within the header"});
  fs::copy(good, bad, fs::copy_options::overwrite_existing);
  flipByte(bad);
  expectRefusal(resumeFrom(bad), 1, {"bad.safetensors: tensor ", " is corrupt"});
  expectRefusal(resumeFrom(write("newer.safetensors",
                                 replaced(readAll(good), R"("version":"2")", R"("version":"3")"))),
                1, {"newer.safetensors", "newer Trireme: version 3, this one reads 2"});
  expectRefusal(resumeFrom(write("text.safetensors", "not a checkpoint")), 1, {"text.safetensors"});
  expectRefusal(resumeFrom(path("none")), 1, {"none: no such checkpoint"});
  fs::create_directory(path("nothing"));
  expectRefusal(resumeFrom(path("nothing")), 1, {"nothing: no checkpoint", "in this folder"});

  model = write("other.yaml", replaced(kTinyModel, "layers: 4", "layers: 2"));
  expectRefusal(run(compile("other", {"--gpus", "1"}), {"--steps", "3", "--resume", good}), 1,
                {"step-00000001.safetensors",
                 "of another model: the checkpoint has a tensor layers.2.", ", this run none"});
}

TEST_F(RunCommand, WhereResumingFailsTheNextStepIsNamed) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string saved = path("ckpt");
  expectSuccess(run(bundle, {"--steps", "3", "--save", saved, "--save-every", "1"}));
  truncate(saved + "/step-00000003.safetensors");
  flipByte(saved + "/step-00000002.safetensors");
  expectRefusal(run(bundle, {"--steps", "4", "--resume", saved}), 1,
                {"step-00000003.safetensors",
                 "the last intact one before it is --resume " + saved + "/step-00000001"});
  // Of a damaged header, too.
  const std::string third = saved + "/step-00000003.safetensors";
  expectSuccess(run(bundle, {"--steps", "3", "--save", path("again")}));
  write("ckpt/step-00000003.safetensors",
        replaced(readAll(path("again/step-00000003.safetensors")), R"("data":")", R"("dat`":")"));
  expectRefusal(run(bundle, {"--steps", "4", "--resume", saved}), 1,
                {third + ": the header is corrupt",
                 "the last intact one before it is --resume " + saved + "/step-00000001"});
  truncate(saved + "/step-00000001.safetensors");
  expectRefusal(run(bundle, {"--steps", "4", "--resume", saved}), 1,
                {"no intact checkpoint of this model is beside it"});
  write("ckpt/step-00000003.safetensors", readAll(path("again/step-00000003.safetensors")));
  expectRefusal(run(bundle, {"--steps", "4", "--resume", saved + "/step-00000001.safetensors"}), 1,
                {"the newest intact one beside it is --resume " + third});

  expectSuccess(run(bundle, {"--steps", "1", "--save", path("other")}));
  training = write("other.yaml", std::string(kTinyTraining) + "seed: 7\n");
  expectRefusal(
      run(compile("other", {"--gpus", "1"}), {"--steps", "2", "--resume", path("other")}), 1,
      {"seed is ", " in the checkpoint and 7 in this run",
       "compile a bundle with the checkpoint's settings, or begin anew without --resume"});
}

// Steps that were measured are not lost.
TEST_F(RunCommand, ANewRunDoesNotReplaceMetrics) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), metrics = path("m.jsonl");
  expectSuccess(run(bundle, {"--steps", "1", "--metrics", metrics}));
  const std::string before = readAll(metrics);
  expectRefusal(run(bundle, {"--steps", "1", "--metrics", metrics}), 1,
                {"m.jsonl: has something in it", "--resume"});
  EXPECT_EQ(readAll(metrics), before);
}

TEST_F(RunCommand, OtherDataThanTheCheckpointsIsRefusedUnlessAskedFor) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt")}));
  const std::vector<std::string> further = {"--steps", "2", "--resume", path("ckpt")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), further.begin(), further.end());
    return run(bundle, more);
  };
  expectRefusal(with({"--order", "shuffled"}), 1,
                {"step-00000001.safetensors was trained on other data: ", "tokens in random order",
                 "now --data has", "tokens in shuffled order", "--new-data goes on with these"});
  expectSuccess(with({"--order", "shuffled", "--new-data"}));
  expectRefusal(run(bundle, {"--steps", "1", "--new-data"}), 2, {"--new-data", "--resume"});
}

TEST_F(RunCommand, CheckpointAtTheEndOfTrainingHasNothingToContinue) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "2", "--save", path("ckpt")}));
  expectRefusal(run(bundle, {"--steps", "2", "--resume", path("ckpt")}), 1,
                {"nothing to do: ", "step-00000002.safetensors has done 2 steps", "ends at step 2",
                 "not from the checkpoint: give --steps 3 or more"});
}

TEST_F(RunCommand, UnwritableOutputsAreErrors) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectRefusal(run(bundle, {"--steps", "1", "--metrics", "/dev/full"}), 1,
                {"/dev/full", "No space"});
  expectRefusal(run(bundle, {"--steps", "1", "--metrics", path("no/m.jsonl")}), 1, {"no/m.jsonl"});
  // The trace comes last: what was trained is reported all the same.
  const Outcome trained = run(bundle, {"--steps", "1", "--trace", "/dev/full"});
  EXPECT_EQ(trained.exitCode, 1);
  EXPECT_THAT(trained.out, ::testing::HasSubstr("loss"));
  EXPECT_THAT(trained.err, ::testing::AllOf(::testing::HasSubstr("/dev/full"),
                                            ::testing::HasSubstr("No space")));
  expectRefusal(run(bundle, {"--steps", "1", "--save", data + "/sub"}), 1, {"data.txt/sub"});
}

// The metrics' disk is full, that of the checkpoints is not.
TEST_F(RunCommand, WhereMetricsCannotBeWrittenTheTrainingIsSaved) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string saved = path("a/step-00000001.safetensors");
  expectRefusal(run(bundle, {"--steps", "3", "--metrics", "/dev/full", "--save", path("a")}), 1,
                {"/dev/full: cannot write: No space left on device; the training up to here is "
                 "saved: " +
                 saved});
  EXPECT_FALSE(fs::exists(path("a/step-00000002.safetensors")));
  expectSuccess(run(bundle, {"--steps", "2", "--resume", saved}));
  // Also where it was to be saved anyway.
  expectRefusal(run(bundle, {"--steps", "3", "--metrics", "/dev/full", "--save", path("b"),
                             "--save-every", "1"}),
                1, {"/dev/full", "is saved: " + path("b/step-00000001.safetensors")});
}

// Refused before the first step: the data is as before and there is no checkpoint.
TEST_F(RunCommand, OutputsNeverReplaceInputsOrEachOther) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), text = readAll(data);
  const auto refuse = [&](const std::vector<std::string>& more,
                          const std::vector<std::string>& parts) {
    std::vector<std::string> args = {"--steps", "1", "--save", path("ckpt"), "--cluster", cluster};
    args.insert(args.end(), more.begin(), more.end());
    expectRefusal(run(bundle, args), 1, parts);
    EXPECT_FALSE(fs::exists(path("ckpt")));
  };
  refuse({"--metrics", data}, {"--metrics " + data + ": is also --data"});
  refuse({"--trace", data}, {"--trace " + data + ": is also --data"});
  refuse({"--trace", cluster}, {"is also --cluster"});
  fs::create_hard_link(data, path("hard.txt"));
  refuse({"--metrics", path("hard.txt")}, {"hard.txt: is also --data"});
  refuse({"--metrics", path("x"), "--trace", path("x")}, {"--metrics", "is also --trace"});
  refuse({"--metrics", bundle + "/plan.yaml"}, {"is inside of the bundle"});
  refuse({"--trace", bundle + "/t.json"}, {"is inside of the bundle"});
  refuse({"--trace", path("no/t.json")}, {"no/t.json: cannot write: No such file"});
  refuse({"--trace", path("")}, {"cannot write: Is a directory"});
  refuse({"--trace", data + "/t.json"}, {"cannot write: Not a directory"});
  EXPECT_EQ(readAll(data), text);
  expectRefusal(run(bundle, {"--steps", "1", "--save", bundle + "/ckpt"}), 1,
                {"--save", "is inside of the bundle"});
  expectSuccess(run(bundle, {"--steps", "1", "--metrics", "/dev/null", "--trace", "/dev/null"}));
}

// A file system of 64 KiB holds no checkpoint of the tiny model (some 40 000 parameters of 12
// bytes).
TEST_F(RunCommand, FullDiskDuringACheckpointKeepsTheOldOne) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  fs::create_directory(path("disk"));
  const std::string mount = "mount -t tmpfs -o size=64k none '" + path("disk") + "' 2> /dev/null";
  if (geteuid() != 0 || std::system(mount.c_str()) != 0) GTEST_SKIP() << "cannot mount a tmpfs";
  write("disk/step-00000000.safetensors", "the old one");
  const Outcome outcome = run(bundle, {"--steps", "1", "--save", path("disk")});
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(path("disk")))
    left.push_back(entry.path().filename());
  EXPECT_EQ(std::system(("umount '" + path("disk") + "'").c_str()), 0);
  expectRefusal(outcome, 1, {"step-00000001.safetensors", "No space left"});
  EXPECT_THAT(left, ::testing::ElementsAre("step-00000000.safetensors"));
}

// A disk that holds one checkpoint (some 490 KB) and is filled before the second: the training goes
// on from the first as if nothing had happened.
TEST_F(RunCommand, TrainingGoesOnFromTheCheckpointBeforeAFullDisk) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), disk = path("disk");
  fs::create_directory(disk);
  const std::string mount = "mount -t tmpfs -o size=1m none '" + disk + "' 2> /dev/null";
  if (geteuid() != 0 || std::system(mount.c_str()) != 0) GTEST_SKIP() << "cannot mount a tmpfs";
  const Mounted mounted{disk};
  expectSuccess(run(bundle, {"--steps", "3", "--metrics", path("whole.jsonl")}));
  const std::string metrics = path("part.jsonl"), first = disk + "/step-00000001.safetensors";
  expectSuccess(run(bundle, {"--steps", "1", "--save", disk, "--metrics", metrics}));
  const std::string saved = readAll(first);
  write("disk/filler", std::string(1 << 20, 'x'));  // as much of it as there is room for
  const Outcome full =
      run(bundle, {"--steps", "2", "--resume", disk, "--save", disk, "--metrics", metrics});
  EXPECT_EQ(full.exitCode, 1);
  EXPECT_EQ(full.out, "");
  EXPECT_THAT(full.err, HasSubstr("error: checkpoint not written, what was there before is "
                                  "untouched: " +
                                  disk + "/step-00000002.safetensors"));
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  EXPECT_EQ(readAll(first), saved);
  EXPECT_EQ(std::distance(fs::directory_iterator(disk), {}), 2);  // the checkpoint and the filler
  fs::remove(disk + "/filler");
  const Outcome rest = run(bundle, {"--steps", "3", "--resume", disk, "--metrics", metrics});
  expectSuccess(rest);
  EXPECT_THAT(rest.err, HasSubstr("resuming after step 1"));
  EXPECT_EQ(lossesIn(metrics), lossesIn(path("whole.jsonl")));
}

// {rank, stream} -> the names of the row, of a trace.
std::map<std::pair<int, int>, std::string> rowsOf(const std::string& tracePath) {
  std::map<std::pair<int, int>, std::string> rows;
  std::map<int, std::string> ranks;
  const nlohmann::json trace = nlohmann::json::parse(readAll(tracePath));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M") continue;
    const int rank = event.at("pid");
    if (event.at("name") == "process_name") ranks[rank] = event.at("args").at("name");
    if (event.at("name") == "thread_name")
      rows[{rank, event.at("tid").get<int>()}] =
          ranks[rank] + ": " + event.at("args").at("name").get<std::string>();
  }
  // Every slice is in a row that has a name.
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::pair<int, int> row = {event.at("pid"), event.at("tid")};
    EXPECT_TRUE(rows.contains(row)) << event;
  }
  return rows;
}

// One on top of the other they can be compared: a row per rank and stream, of the same names.
TEST_F(RunCommand, MeasuredAndSimulatedTracesHaveTheSameRows) {
  expectSuccess(plan({"--tp", "2", "--pp", "2", "--dp", "2", "-o", path("plan.yaml")}));
  const std::string bundle = path("traced.bundle");
  expectSuccess(runTrireme({"compile", "--model", model, "--plan", path("plan.yaml"), "--cluster",
                            cluster, "--simulate", path("simulated.json"), "-o", bundle}));
  expectSuccess(run(bundle, {"--steps", "1", "--trace", path("measured.json")}));
  const auto simulated = rowsOf(path("simulated.json")), measured = rowsOf(path("measured.json"));
  EXPECT_EQ(simulated, measured);
  EXPECT_EQ(measured.size(), static_cast<size_t>(8 * program::kNumStreams));
}

// On a terminal whose clock is past the first seconds at once.
TEST_F(RunCommand, ProgressShowsLossSpeedAndMemory) {
  auto session = runtime::Session::open(compile("tiny", {"--gpus", "1"}), {});
  ASSERT_TRUE(session.has_value()) << session.error().message();
  const auto tokens = runtime::TokenFiles::open({data}, {.sequenceLength = 16});
  ASSERT_TRUE(tokens.has_value()) << tokens.error().message();
  auto metrics = MetricsFile::open("", std::nullopt);
  ASSERT_TRUE(metrics.has_value());
  std::vector<std::string> written;
  int64_t hours = 0;
  const Terminal terminal{
      true, [&] { return Terminal::Clock::time_point(std::chrono::hours(++hours)); },
      [] { return size_t{100}; }, [&](const std::string& text) { written.push_back(text); }};
  ASSERT_TRUE(
      train(**session, **tokens, *metrics, {.numSteps = 2, .terminal = terminal}).has_value());
  ASSERT_EQ(written.size(), 3u);  // two steps, and away
  const std::string number = "[0-9]+(\\.[0-9]+)?", bytes = number + " (KiB|MiB|GiB)";
  EXPECT_THAT(written[0],
              ::testing::MatchesRegex("\r\033\\[K\\[#####-----\\] step 1/2  loss " + number + "  " +
                                      number + " tok/s  RSS " + bytes + ", arenas " + bytes));
  EXPECT_THAT(written[1], HasSubstr("[##########] step 2/2  loss "));
  EXPECT_EQ(written[2], "\r\033[K");
}

}  // namespace
}  // namespace trireme::cli
#endif
