#include "tests/cli/command.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string makeFolder() {
  std::string folder = (fs::temp_directory_path() / "trireme-cli-XXXXXX").string();
  return mkdtemp(folder.data()) ? folder : "";
}

}  // namespace

const char* const kTinyModel = R"(name: tiny
family: gpt
layers: 4
hidden_size: 32
heads: 4
ffn_size: 64
vocab_size: 256
max_sequence: 16
tied_embeddings: true
)";

const char* const kTinyCluster = R"(name: laptop
num_devices: 8
device:
  name: core
  kind: host
  matmul:
    f32: {value: 40 GFLOP/s, source: "test"}
  matmul_efficiency: {value: 1, source: "test"}
  memory: {value: 64 MiB, source: "test"}
  memory_bandwidth: {value: 4 GB/s, source: "test"}
  memory_efficiency: {value: 1, source: "test"}
  launch_overhead: {value: 1 us, source: "test"}
tiers:
  - name: memory
    bandwidth: {value: 8 GB/s, source: "test"}
    latency: {value: 6 us, source: "test"}
)";

const char* const kTinyTraining = R"(precision: fp32
sequence_length: 16
global_batch_size: 8
embedding_dropout: 0.1
attention_dropout: 0.1
residual_dropout: 0.1
learning_rate: 1e-3
)";

Outcome runTrireme(const std::vector<std::string>& args) {
  const std::string folder = makeFolder();
  std::string command = quoted(TRIREME_BINARY);
  for (const std::string& arg : args) command += " " + quoted(arg);
  command += " < /dev/null > " + folder + "/out 2> " + folder + "/err";
  const int status = std::system(command.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, readAll(folder + "/out"),
                  readAll(folder + "/err")};
  fs::remove_all(folder);
  return outcome;
}

void expectSuccess(const Outcome& outcome) { ASSERT_EQ(outcome.exitCode, 0) << outcome.err; }

void expectRefusal(const Outcome& outcome, int exitCode, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exitCode, exitCode) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, ::testing::StartsWith("error: "));
  EXPECT_EQ(outcome.err.find("error: ", 1), std::string::npos) << outcome.err;
  for (const std::string& part : parts) EXPECT_THAT(outcome.err, ::testing::HasSubstr(part));
}

CommandTest::CommandTest() : folder_(makeFolder()) {
  model = write("model.yaml", kTinyModel);
  cluster = write("cluster.yaml", kTinyCluster);
  training = write("train.yaml", kTinyTraining);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "The quick brown fox jumps over the lazy dog. ";
  data = write("data.txt", text);
}

CommandTest::~CommandTest() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string CommandTest::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

Outcome CommandTest::plan(const std::vector<std::string>& more) const {
  std::vector<std::string> args = {"plan",  "--model", model,   "--cluster",
                                   cluster, "--train", training};
  args.insert(args.end(), more.begin(), more.end());
  return runTrireme(args);
}

std::string CommandTest::compile(const std::string& name,
                                 const std::vector<std::string>& pins) const {
  const std::string planPath = path(name + ".plan.yaml"), bundle = path(name + ".bundle");
  std::vector<std::string> more = {"-o", planPath};
  more.insert(more.end(), pins.begin(), pins.end());
  expectSuccess(plan(more));
  expectSuccess(runTrireme({"compile", "--model", model, "--plan", planPath, "-o", bundle}));
  return bundle;
}

Outcome CommandTest::run(const std::string& bundle, const std::vector<std::string>& more) const {
  std::vector<std::string> args = {"run", bundle, "--data", data};
  args.insert(args.end(), more.begin(), more.end());
  return runTrireme(args);
}

std::string readAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<double> lossesIn(const std::string& metricsPath) {
  std::vector<double> losses;
  std::istringstream lines(readAll(metricsPath));
  for (std::string line; std::getline(lines, line);)
    losses.push_back(nlohmann::json::parse(line).at("loss"));
  return losses;
}

}  // namespace trireme::cli
