// What `trireme plan` recommends, `trireme compile` builds: the winner and every runner-up.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ir/plan/plan.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

// Five layers on grouped keys and values, so that stages are uneven; a vocabulary and a sequence
// that little divides.
constexpr const char* kOddLlama = R"(name: odd
family: llama
layers: 5
hidden_size: 48
heads: 6
kv_heads: 2
ffn_size: 88
vocab_size: 101
max_sequence: 18
norm_epsilon: 1e-5
rope_theta: 10000
rope_scaling: {type: linear, factor: 2}
tied_embeddings: false
qkv_bias: true
)";

struct Question {
  const char* name;
  const char* model;      // of examples/models; "tiny" or "odd": of this test
  const char* cluster;    // of examples/clusters; "host": this test's
  const char* memory;     // of a host's device
  const char* pins;       // and what else `plan` is told
  const char* mustBuild;  // in the summary of one of the plans
  const char* target;     // of `compile`
};

constexpr Question kQuestions[] = {
    {"free", "tiny", "host", "64 MiB", "--top 8", "sharded optimizer", "host"},
    {"interleaved", "tiny", "host", "64 MiB", "--schedule interleaved --microbatch 1 --top 6",
     "interleaved x 2", "host"},
    {"gpipe", "tiny", "host", "64 MiB", "--schedule gpipe --pp 2 --precision fp16 --top 4", "gpipe",
     "host"},
    {"split", "tiny", "host", "64 MiB",
     "--tp 2 --pp 2 --sequence-parallel on --precision bf16 --top 3", "sequence parallel", "host"},
    {"scattered", "tiny", "host", "64 MiB",
     "--tp 2 --pp 2 --scatter-gather on --sequence-parallel off --top 3", "scatter-gather", "host"},
    {"recomputed", "tiny", "host", "64 MiB",
     "--recompute full --state-sharding none --dp 2 --top 4", "recompute full", "host"},
    {"selective", "tiny", "host", "64 MiB", "--recompute selective --precision fp64 --tp 4 --top 3",
     "recompute selective", "host"},
    {"little memory", "tiny", "host", "4500 KiB", "--top 6", "", "host"},
    {"odd", "odd", "host", "64 MiB", "--batch 6 --seq 18 --vocab-multiple 1 --top 6", "", "host"},
    {"uneven", "odd", "host", "64 MiB", "--batch 6 --seq 18 --pp 2 --top 4", "pp 2", "host"},
    {"on GPUs", "gpt2-124m", "dgx-a100", "",
     "--gpus 8 --batch 32 --seq 256 --precision bf16 --top 4", "", "cuda:sm_80"},
    {"split on GPUs", "llama3.1-8b", "dgx-h100", "",
     "--gpus 16 --batch 16 --seq 512 --tp 2 --pp 2 --precision bf16 --top 2", "interleaved",
     "cuda:sm_90"},
    {"fp32 on GPUs", "odd", "dgx-h100", "", "--gpus 6 --batch 12 --seq 18 --precision fp32 --top 4",
     "", "cuda:sm_90a"},
};

void PrintTo(const Question& question, std::ostream* out) { *out << question.name; }

class RecommendedPlans : public CommandTest, public ::testing::WithParamInterface<Question> {};

std::vector<std::string> wordsOf(const char* line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

// The tiny cluster, with rates for every precision.
std::string hostCluster() {
  std::string rates;
  for (const char* type : {"f64", "bf16", "f16", "f32"})
    rates += std::string("    ") + type + ": {value: 40 GFLOP/s, source: \"test\"}\n";
  return replaced(kTinyCluster, "    f32: {value: 40 GFLOP/s, source: \"test\"}\n", rates);
}

// In a build without a code generator everything before it: rules, expansion, proof.
void expectCompiles(const Outcome& outcome) {
#if TRIREME_HAVE_MLIR
  expectSuccess(outcome);
#else
  expectRefusal(outcome, 1, {"TRIREME_MLIR=OFF"});
#endif
}

TEST_P(RecommendedPlans, AllCompile) {
  const Question& q = GetParam();
  const bool isTiny = std::string_view(q.model) == "tiny";
  if (!isTiny) model = std::string_view(q.model) == "odd" ? write("odd.yaml", kOddLlama) : q.model;
  if (std::string_view(q.cluster) == "host")
    write("cluster.yaml", replaced(hostCluster(), "64 MiB", q.memory));
  else
    cluster = q.cluster;
  std::vector<std::string> args = {"plan", "--model", model, "--cluster", cluster, "--json"};
  if (isTiny) args.insert(args.end(), {"--train", training});
  for (const std::string& word : wordsOf(q.pins)) args.push_back(word);
  const Outcome planned = runTrireme(args);
  ASSERT_EQ(planned.exitCode, 0) << planned.err;
  const nlohmann::json answer = nlohmann::json::parse(planned.out);
  std::vector<std::string> plans = {answer.at("plan")};
  std::string summaries = answer.at("summary");
  for (const nlohmann::json& other : answer.at("runnersUp")) {
    plans.push_back(other.at("plan"));
    summaries += "\n" + other.at("summary").get<std::string>();
  }
  EXPECT_THAT(summaries, HasSubstr(q.mustBuild));
  for (const std::string& plan : plans) {
    SCOPED_TRACE(plan);
    expectCompiles(runTrireme({"compile", "--model", model, "--plan", write("plan.yaml", plan),
                               "--target", q.target, "-o", path("bundle")}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecommendedPlans, ::testing::ValuesIn(kQuestions),
                         [](const auto& info) {
                           std::string name;
                           for (const std::string& word : wordsOf(info.param.name)) {
                             name += static_cast<char>(std::toupper(word[0]));
                             name += word.substr(1);
                           }
                           return name;
                         });

}  // namespace
}  // namespace trireme::cli
