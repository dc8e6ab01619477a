// Any bytes give a spec or an error with its place: never a crash, an exception, or a value that
// the verifier would refuse. Valid documents are mutated by a generator with a fixed seed, so a
// failure can be repeated.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "ir/base/rng.h"
#include "ir/spec/load.h"
#include "ir/spec/profile.h"

namespace trireme::spec {
namespace {

const char* const kModel =
    "# a model\n"
    "name: \"tiny \\\"one\\\"\"\n"
    "family: llama\n"
    "layers: 2\n"
    "hidden_size: 8\n"
    "heads: 4\n"
    "kv_heads: 2\n"
    "ffn_size: 24\n"
    "vocab_size: 50\n"
    "max_sequence: 16\n"
    "norm_epsilon: 1e-6\n"
    "rope_theta: 500000\n"
    "rope_scaling: {type: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4,\n"
    "  original_max_position_embeddings: 8}\n"
    "tied_embeddings: false\n"
    "qkv_bias: false\n";

const char* const kConfig =
    "{\n"
    "  \"model_type\": \"mistral\",\n"
    "  \"hidden_act\": \"silu\",\n"
    "  \"hidden_size\": 4096,\n"
    "  \"intermediate_size\": 14336,\n"
    "  \"max_position_embeddings\": 32768,\n"
    "  \"num_attention_heads\": 32,\n"
    "  \"num_hidden_layers\": 32,\n"
    "  \"num_key_value_heads\": 8,\n"
    "  \"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"llama3\", \"factor\": 8.0,\n"
    "    \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
    "\"original_max_position_embeddings\": 8192},\n"
    "  \"layer_types\": [\"full_attention\", \"full_attention\"],\n"
    "  \"sliding_window\": null,\n"
    "  \"vocab_size\": 32000\n"
    "}\n";

const char* const kTraining =
    "precision: bf16\n"
    "seed: 18446744073709551615\n"
    "sequence_length: 128\n"
    "embedding_dropout: 0.1\n"
    "learning_rate: 1e-3\n"
    "warmup_steps: 10\n"
    "decay_steps: 190\n";

const char* const kCluster =
    "name: boxes\n"
    "num_devices: 16\n"
    "device:\n"
    "  name: gpu\n"
    "  kind: cuda\n"
    "  matmul:\n"
    "    bf16: {value: 312 TFLOP/s, source: a}\n"
    "  matmul_efficiency: {value: 0.8, source: b}\n"
    "  memory: {value: 80 GiB, source: a}\n"
    "  memory_bandwidth: {value: 2039 GB/s, source: a}\n"
    "  memory_efficiency: {value: 0.9, source: b}\n"
    "  launch_overhead: {value: 2 us, source: b}\n"
    "  multiprocessors: {value: 108, source: c}\n"
    "  power: {value: 400 W, source: d}\n"
    "tiers:\n"
    "  - name: nvlink\n"
    "    topology: mesh\n"
    "    devices: 8\n"
    "    bandwidth: {value: 300 GB/s, source: a}\n"
    "    efficiency: {value: 0.8, source: \"a \\\"b\\\"\"}\n"
    "    pair_bandwidth: {value: 50 GB/s, source: a}\n"
    "    latency: {value: 5 us, source: b}\n"
    "    curves:\n"
    "      - collective: all_reduce\n"
    "        group: 8\n"
    "        source: a\n"
    "        points: [[64 KiB, 5.87 GB/s], [1 MiB, 67.3 GB/s]]\n"
    "  - name: ib\n"
    "    bandwidth: {value: 200 Gbit/s, source: a}\n"
    "    nics: {value: 8, source: a}\n"
    "    oversubscription: {value: 2, source: a}\n"
    "    latency: {value: 10 us, source: b}\n";

const char* const kStack =
    "name: s\n"
    "flash_attention: false\n"
    "overlap_reductions: true\n"
    "overlap_pipeline_transfers: false\n"
    "fixed_reserve: {value: 2 GiB, source: a}\n"
    "gpu_reserve: {value: 1 GiB, source: a}\n"
    "nccl_connection: {value: 15 MiB, source: a}\n"
    "optimizer_bytes_per_parameter: {value: 12, source: a}\n";

const char* const kProfile =
    "name: diamond\n"
    "source: hand-made\n"
    "memory: 8 GiB\n"
    "microbatches: 16\n"
    "layers:\n"
    "  - {id: a, forward: 1 ms, backward: 2 ms, weights: 4 kB, activation: 1 MB}\n"
    "  - {id: b, forward: 2 us, backward: 0 s, weights: 0 B, activation: 2 MB, stored: 3 MB}\n"
    "  - id: c\n"
    "    variants:\n"
    "      - {name: plain, tensor: 1, forward: 4 ms, backward: 8 ms, weights: 8 B}\n"
    "      - {name: split, tensor: 2, forward: 2 ms, backward: 4 ms, weights: 4 B,\n"
    "         resident: 1 KiB, sync_in: {a: 5 B}, sync_out: {d: 6 B}}\n"
    "  - {id: d, forward: 1 ms, backward: 2 ms, weights: 4 B}\n"
    "edges:\n"
    "  - {from: a, to: b}\n"
    "  - {from: a, to: c, transfer: 10 B}\n"
    "  - {from: b, to: d}\n"
    "  - {from: c, to: d, transfer: 0 B}\n";

const char* const kChain =
    "source: s\n"
    "layers:\n"
    "  - {id: 1, forward: 1 s, backward: 1 s, weights: 1 B, activation: 5 B}\n"
    "  - {id: 2, forward: 1 s, backward: 1 s, weights: 1 B}\n"
    "edges: chain\n";

const char* const kPipedream =
    "node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, "
    "activation_size=5.0, parameter_size=0.0\n"
    "node2 -- Conv2d(3, 64, bias=True) -- forward_compute_time=1.500, "
    "backward_compute_time=2.500, activation_size=[1000.0; 24.0], parameter_size=7168.000\n"
    "node3 -- ReLU(inplace) -- forward_compute_time=0.5, backward_compute_time=0.25, "
    "activation_size=8.0, parameter_size=0.000 -- stage_id=2\n"
    "node4 -- __getitem__(1) -- forward_compute_time=0.0, backward_compute_time=0.0, "
    "activation_size=8.0, parameter_size=0.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n"
    "\tnode2 -- node4\n";

const char* const kPiper =
    "{\n"
    "  \"maxDevices\": 10, \"maxMemoryPerDevice\": 8e9, \"bandwidth\": 25e9,\n"
    "  \"mbsInBatch\": 1920,\n"
    "  \"nodes\": [\n"
    "    {\"id\": 7, \"name\": \"in\", \"TMPCs\": {\"1\": [\n"
    "      {\"id\": \"vanilla\", \"timePerSample\": 0.5, \"parameterSize\": 100.0,\n"
    "       \"memoryUsageA\": 1.0, \"memoryUsageB\": 2.0, \"syncTimeFw\": {},\n"
    "       \"syncTimeBw\": {\"9\": 0.0}}]}},\n"
    "    {\"id\": 9, \"TMPCs\": {\"2\": [\n"
    "      {\"id\": \"vanilla\", \"timePerSample\": 0.25, \"parameterSize\": 10.0,\n"
    "       \"memoryUsageA\": 1.0, \"memoryUsageB\": 2.0, \"syncTimeFw\": {\"7\": 64.0},\n"
    "       \"syncTimeBw\": {}}]}}],\n"
    "  \"edges\": [{\"sourceId\": 7, \"destId\": 9, \"communicationCost\": 32.0}]\n"
    "}\n";

// What parsers trip over: the syntax of YAML and JSON, numbers at the ends of their ranges, broken
// UTF-8.
const std::string kTokens[] = {"&a ",
                               "*a",
                               "!!int ",
                               "!<x> ",
                               "? ",
                               "- ",
                               "[",
                               "]",
                               "{",
                               "}",
                               ",",
                               ":",
                               ": ",
                               "|\n",
                               ">-\n",
                               "---\n",
                               "...\n",
                               "%YAML 1.9\n",
                               "%TAG ! x\n",
                               "#",
                               "\t",
                               "\r",
                               "\n",
                               "\n  ",
                               "'",
                               "\"",
                               "\\u0000",
                               "\\ud800",
                               "\\x",
                               "~",
                               "null",
                               "<<: ",
                               "@",
                               "`",
                               "-1",
                               "0",
                               "1e999",
                               "1e-999",
                               ".nan",
                               "-.inf",
                               "0x10",
                               "9223372036854775807",
                               "9223372036854775808",
                               "18446744073709551616",
                               "1073741824",
                               "true",
                               "80",
                               " GB",
                               " Gb/s",
                               "\x80",
                               "\xC3",
                               "\xED\xA0\x80",
                               "\xEF\xBB\xBF",
                               "\xFF\xFE",
                               std::string(1, '\0'),
                               "\x04",
                               "\x7F",
                               std::string(200, '['),
                               std::string(200, '{'),
                               std::string(3000, 'a')};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : key_(makeRngKey(seed, 0, 0, RngStream::kDataShuffle)) {}

  size_t below(size_t bound) { return bound == 0 ? 0 : randomWord(key_, 0, next_++) % bound; }

  std::string mutate(std::string text, const std::vector<std::string>& corpus) {
    for (size_t count = 1 + below(4); count > 0; --count) mutateOnce(text, corpus);
    return text;
  }

 private:
  void mutateOnce(std::string& text, const std::vector<std::string>& corpus) {
    const size_t at = below(text.size() + 1);
    const size_t length = below(1 + std::min<size_t>(text.size() - at, 30));
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 3:
        text.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 4:
        text.replace(at, length, kTokens[below(std::size(kTokens))]);
        break;
      case 5: {
        const std::string& other = corpus[below(corpus.size())];
        text.insert(at, other.substr(below(other.size()), below(80)));
        break;
      }
      default:
        text.resize(at);
        break;
    }
  }

  RngKey key_;
  uint64_t next_ = 0;
};

// "fuzz.yaml:line:column: message", with whatever the file is called.
bool hasPlace(const Status& status) {
  int line = 0, column = 0, length = 0;
  std::sscanf(status.message().c_str(), "fuzz.%*[a-z]:%d:%d: %n", &line, &column, &length);
  return status.code() == StatusCode::kInvalidArgument && line >= 1 && column >= 1 && length > 0 &&
         static_cast<size_t>(length) < status.message().size();
}

void checkModel(const ModelSpec& model) {
  EXPECT_TRUE(verifyModel(model).ok());
  EXPECT_GT(model.numParameters(), 0);
  const Result<ModelSpec> again = parseModel(printModel(model), "fuzz.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, model);
}

void checkTraining(const TrainingSpec& training) {
  const Result<TrainingSpec> again = parseTraining(printTraining(training), "fuzz.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, training);
  for (const int64_t step : {int64_t{0}, int64_t{1000}, int64_t{1} << 60})
    EXPECT_TRUE(std::isfinite(training.learningRateAt(step)));
}

void checkCluster(const ClusterSpec& cluster) {
  ASSERT_FALSE(cluster.tiers.empty());
  EXPECT_EQ(cluster.tiers.back().devices, cluster.numDevices);
  EXPECT_GT(cluster.device.memory.count(), 0);
  for (const LinkTier& tier : cluster.tiers) {
    EXPECT_GT(tier.bandwidth.count(), 0);
    EXPECT_GE(tier.latency.count(), 0);
  }
  const Result<std::string> printed = printCluster(cluster);
  ASSERT_TRUE(printed.has_value()) << printed.error().message();
  const Result<ClusterSpec> again = parseCluster(*printed, "fuzz.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, cluster);
}

// Every sum of a profile is finite, and its own text gives it back.
void checkProfile(const ProfileSpec& profile) {
  Seconds time;
  Bytes bytes;
  for (const ProfileLayer& layer : profile.layers) {
    ASSERT_FALSE(layer.variants.empty());
    for (const ProfileVariant& variant : layer.variants) {
      time += variant.time();
      bytes += variant.weights + variant.stored.value_or(Bytes(0));
      for (const EdgeBytes& sync : variant.sync)
        ASSERT_LT(static_cast<size_t>(sync.edge), profile.edges.size());
    }
  }
  for (const ProfileEdge& edge : profile.edges) bytes += edge.transfer;
  EXPECT_GE(time.count(), 0);
  EXPECT_TRUE(std::isfinite(time.count() + bytes.count()));
  const Result<ProfileSpec> again = parseProfile(printProfile(profile), "fuzz.yaml");
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(*again, profile);
}

void checkStack(const StackProfile& stack) { EXPECT_GE(stack.fixedReserve.count(), 0); }

template <typename T>
int fuzz(const std::vector<std::string>& seeds,
         Result<T> (*parse)(const std::string&, const std::string&), void (*check)(const T&),
         int numCases, const std::string& name = "fuzz.yaml") {
  const std::vector<std::string> corpus = {kModel, kConfig,  kTraining,  kCluster,
                                           kStack, kProfile, kPipedream, kPiper};
  Mutator mutator(20240229);
  int numAccepted = 0;
  for (int i = 0; i < numCases; ++i) {
    const std::string text = mutator.mutate(seeds[mutator.below(seeds.size())], corpus);
    const Result<T> result = parse(text, name);
    if (result.has_value()) {
      ++numAccepted;
      check(*result);
    } else {
      EXPECT_TRUE(hasPlace(result.error())) << result.error().message();
    }
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "case " << i << ":\n" << text;
      break;
    }
  }
  return numAccepted;
}

// Some mutants are harmless (in a comment, in a name): a loop that accepts none tests nothing but
// the refusals.
TEST(SpecFuzz, ModelsNeverCrash) {
  EXPECT_GT(fuzz<ModelSpec>({kModel, kConfig}, parseModel, checkModel, 9000), 20);
}

TEST(SpecFuzz, TrainingSettingsNeverCrash) {
  const auto parse = [](const std::string& text, const std::string& name) {
    return parseTraining(text, name);
  };
  EXPECT_GT(fuzz<TrainingSpec>({kTraining}, parse, checkTraining, 4000), 20);
}

TEST(SpecFuzz, ClustersNeverCrash) {
  EXPECT_GT(fuzz<ClusterSpec>({kCluster}, parseCluster, checkCluster, 5000), 20);
}

TEST(SpecFuzz, StacksNeverCrash) {
  EXPECT_GT(fuzz<StackProfile>({kStack}, parseStack, checkStack, 3000), 10);
}

TEST(SpecFuzz, ProfilesNeverCrash) {
  EXPECT_GT(fuzz<ProfileSpec>({kProfile, kChain}, parseProfile, checkProfile, 6000), 20);
  EXPECT_GT(fuzz<ProfileSpec>({kPipedream}, parseProfile, checkProfile, 5000, "fuzz.txt"), 20);
  EXPECT_GT(fuzz<ProfileSpec>({kPiper}, parseProfile, checkProfile, 5000, "fuzz.json"), 20);
}

TEST(SpecFuzz, RandomBytesAreRefused) {
  Mutator mutator(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text(mutator.below(200), '\0');
    for (char& c : text) c = static_cast<char>(mutator.below(256));
    const Result<ModelSpec> result = parseModel(text, "fuzz.yaml");
    ASSERT_FALSE(result.has_value());
    ASSERT_TRUE(hasPlace(result.error())) << result.error().message();
  }
}

TEST(SpecFuzz, EveryPrefixOfAValidDocumentIsHandled) {
  for (const std::string text : {kModel, kConfig, kCluster})
    for (size_t length = 0; length < text.size(); ++length) {
      const std::string prefix = text.substr(0, length);
      for (const Status& status :
           {parseModel(prefix, "fuzz.yaml").has_value() ? Status()
                                                        : parseModel(prefix, "fuzz.yaml").error(),
            parseCluster(prefix, "fuzz.yaml").has_value()
                ? Status()
                : parseCluster(prefix, "fuzz.yaml").error()})
        EXPECT_TRUE(status.ok() || hasPlace(status)) << status.message();
    }
}

}  // namespace
}  // namespace trireme::spec
