// The files that a run trains on. Only with a code generator: there is nothing to run without one.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

class RunData : public CommandTest {};

// The same tokens as text, as integers and as a Megatron dataset give the same losses to the bit.
TEST_F(RunData, TokensComeFromFilesOfEveryKind) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string text = readAll(data);
  std::string wide;
  for (const char c : text) wide += std::string{c, '\0'};
  const auto word = [](int64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto length = static_cast<int32_t>(text.size());
  const std::string index = std::string("MMIDIDX\0\0", 9) + word(1) + '\10' + word(1) + word(2) +
                            std::string(reinterpret_cast<const char*>(&length), 4) + word(0) +
                            word(0) + word(1);
  write("set.bin", wide);
  const std::string plain = write("tokens.u16", wide), set = write("set.idx", index);
  const auto losses = [&](const std::vector<std::string>& flags) {
    const std::string metrics = path("m.jsonl");
    std::filesystem::remove(metrics);
    std::vector<std::string> args = {"run", bundle, "--steps", "3", "--metrics", metrics};
    args.insert(args.end(), flags.begin(), flags.end());
    expectSuccess(runTrireme(args));
    return lossesIn(metrics);
  };
  const std::vector<double> expected = losses({"--data", data});
  EXPECT_EQ(losses({"--data", plain, "--tokens", "uint16"}), expected);
  EXPECT_EQ(losses({"--data", set}), expected);
  EXPECT_NE(losses({"--data", set, "--order", "shuffled"}), expected);
  expectRefusal(runTrireme({"run", bundle, "--steps", "1", "--data", plain, "--tokens", "int33"}),
                2, {"--tokens", "int33", "int32"});
  write("set.bin", wide.substr(2));
  expectRefusal(runTrireme({"run", bundle, "--steps", "1", "--data", set}), 1,
                {"set.bin: ", " bytes, but ", "set.idx describes "});
}

TEST_F(RunData, BadDataIsRefused) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const auto runOn = [&](const std::string& file) {
    return runTrireme({"run", bundle, "--steps", "1", "--data", file});
  };
  expectRefusal(runOn(path("none.txt")), 1, {"none.txt", "No such file"});
  expectRefusal(runOn(write("empty.txt", "")), 1, {"empty.txt", "empty"});
  expectRefusal(runOn(write("short.txt", "too short")), 1, {"9 bytes", "16 tokens needs 17"});
  expectRefusal(runOn(path("")), 1, {"not a regular file"});
}

// Root may read every file, unless the command is started without that capability.
TEST_F(RunData, UnreadableDataIsRefused) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string secret = write("secret.txt", readAll(data)), err = path("err");
  fs::permissions(secret, fs::perms::none);
  std::string command =
      std::string(TRIREME_BINARY) + " run " + bundle + " --steps 1 --data " + secret + " 2> " + err;
  if (geteuid() == 0) {
    if (std::system("setpriv --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no setpriv";
    command =
        "setpriv --bounding-set=-dac_override,-dac_read_search "
        "--inh-caps=-dac_override,-dac_read_search " +
        command;
  }
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_EQ(readAll(err), "error: data file " + secret + ": Permission denied\n");
}

TEST_F(RunData, VocabularyMustCoverEveryByte) {
  model = write("small.yaml", replaced(kTinyModel, "vocab_size: 256", "vocab_size: 255"));
  expectRefusal(run(compile("small", {"--gpus", "1"}), {"--steps", "1"}), 1,
                {"vocabulary has 255 tokens", "at least 256"});
}

// Bytes are tokens of such a model, but hardly the ones that its weights know.
TEST_F(RunData, BytesForWeightsOfALargerVocabularyAreNoted) {
  model = write("large.yaml", replaced(kTinyModel, "vocab_size: 256", "vocab_size: 300"));
  const std::string bundle = compile("large", {"--gpus", "1"});
  expectSuccess(run(bundle, {"--steps", "1", "--save", path("ckpt")}));
  expectSuccess(runTrireme({"export-weights", path("ckpt"), "--model", model, "-o", path("hf")}));
  const auto noteOf = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--steps", "1"});
    const Outcome outcome = run(bundle, flags);
    expectSuccess(outcome);
    return outcome.err.find(
               "note: a token is a byte of --data, and the weights of --init-from "
               "know 300 tokens") != std::string::npos;
  };
  EXPECT_TRUE(noteOf({"--init-from", path("hf")}));
  EXPECT_FALSE(noteOf({"--init-from", path("hf"), "--tokens", "uint8"}));
  EXPECT_FALSE(noteOf({}));
}

// More than a process may have open by default.
TEST_F(RunData, AsManyFilesMayBeOpenAsTheSystemLetsAProcessHave) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  std::string files;
  for (int i = 0; i < 80; ++i)
    files += " --data " + write("part" + std::to_string(i) + ".txt", readAll(data));
  const auto withLimit = [&](const char* limit) {
    const std::string command = std::string("ulimit ") + limit + " 60 && " + TRIREME_BINARY +
                                " run " + bundle + " --steps 1" + files + " > " + path("out") +
                                " 2> " + path("err");
    return WEXITSTATUS(std::system(command.c_str()));
  };
  EXPECT_EQ(withLimit("-S -n"), 0) << readAll(path("err"));
  EXPECT_EQ(withLimit("-n"), 1);  // the most that it may have as well
  EXPECT_THAT(readAll(path("err")), ::testing::HasSubstr("Too many open files"));
}

TEST_F(RunData, ArraysAndDatasetsSayWhatTheirTokensAre) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const auto on = [&](const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", bundle, "--steps", "1", "--data", file};
    all.insert(all.end(), more.begin(), more.end());
    return runTrireme(all);
  };
  const std::string array = write("train.bin", std::string(4096, 1));
  expectRefusal(on(array, {}), 1, {"train.bin: an array of what?", "--tokens uint16"});
  expectSuccess(on(array, {"--tokens", "uint8"}));
  const std::string index = write("train.idx", "");
  expectRefusal(on(array, {}), 1, {"For the Megatron dataset give ", "train.idx"});
  expectRefusal(on(index, {"--tokens", "uint16"}), 1, {"--tokens: the dataset ", "train.idx"});
  // As Megatron-LM names a dataset.
  expectRefusal(on(path("train"), {}), 1, {"no such file; the Megatron dataset is ", "train.idx"});
  const Outcome tooLong = on(path(std::string(300, 'x')), {});
  expectRefusal(tooLong, 1, {"File name too long"});
  EXPECT_THAT(tooLong.err, ::testing::Not(::testing::HasSubstr("internal error")));
}

// By their first bytes: names say nothing.
TEST_F(RunData, DataWithinAnotherFormatIsRefusedWithWhatToDo) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const auto refuse = [&](const std::string& start, const std::vector<std::string>& parts) {
    const std::string file = write("data.bin", start + std::string(4096 - start.size(), 'x'));
    for (const std::vector<std::string>& more :
         {std::vector<std::string>(), {"--tokens", "uint8"}}) {
      std::vector<std::string> args = {"run", bundle, "--steps", "1", "--data", file};
      args.insert(args.end(), more.begin(), more.end());
      expectRefusal(runTrireme(args), 1, parts);
    }
  };
  refuse("\x93NUMPY", {"data.bin: is a NumPy file with a header", "data.bin').tofile('tokens.bin')",
                       "--tokens uint16"});
  refuse("PK\x03\x04", {"is a zip archive (as .npz and .pt are)", "write its text or its tokens"});
  refuse("\x1f\x8b\x08", {"is compressed by gzip", "unpack it: gunzip " + path("data.bin")});
  refuse("PAR1", {"is a Parquet file"});
  refuse(std::string("\x40\0\0\0\0\0\0\0{\"", 10), {"is a safetensors file"});
  // Text may begin with any letters.
  const std::string text = write("letters.txt", "PAR, PK, BZ" + std::string(4096, 'x'));
  expectSuccess(runTrireme({"run", bundle, "--steps", "1", "--data", text}));
}

}  // namespace
}  // namespace trireme::cli
#endif
