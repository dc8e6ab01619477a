#include "planner/whatif/changes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/question.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The lines of a stack file without the one of `key`.
std::string withoutKey(std::string_view text, const std::string& key) {
  std::istringstream in{std::string(text)};
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key + ":", 0) != 0) out += line + "\n";
  return out;
}

// A value that neither trireme.yaml nor nemo.yaml has.
std::string otherValue(const std::string& key) {
  static const std::map<std::string, std::string> kPlain = {
      {"attention", "flash"},
      {"attention_elsewhere", "flash"},
      {"selective_recompute", "every_other"},
      {"context_exchange", "all_gather"},
      {"scatter_gather", "true"},
      {"gradient_accumulation", "separate_low"},
      {"keeps_f8", "false"},
      {"gathers_f8", "false"},
      {"gathers_f8_activations", "false"},
      {"pipeline_keeps_whole", "true"},
      {"hides_between_chunks", "false"},
      {"keeps_layer_buffers", "false"},
      {"loader_masks", "true"},
      {"eager_layers", "true"},
      {"eager_norms", "true"},
      {"keeps_gathered_inputs", "true"},
      {"keeps_gathered_weights", "true"},
      {"post_validation", "true"},
      {"replica_reduction", "per_microbatch"},
      {"vocab_multiple", "16"},
      {"compared_on", "[V100]"},
      {"host_exponent", "{value: 3, source: here}"},
      {"fp8_rows", "{value: 3, source: here}"},
      {"fp8_columns", "{value: 3, source: here}"},
      {"flash_attention", "false"},
      {"overlap_pipeline_transfers", "false"}};
  static const std::map<std::string, std::string> kUnits = {
      {"step_gradients_at_once", "3 GiB"}, {"transfer_sync", "3 us"}, {"host_launch", "3 us"},
      {"host_microbatch", "3 us"},         {"host_step", "3 us"},     {"reserve", "3 GiB"},
      {"fixed_reserve", "3 GiB"},          {"gpu_reserve", "3 GiB"},  {"nccl_connection", "3 MiB"}};
  if (const auto found = kPlain.find(key); found != kPlain.end()) return found->second;
  const auto unit = kUnits.find(key);
  return "{value: " + (unit == kUnits.end() ? "0.25" : unit->second) + ", source: test}";
}

bool isOwn(const std::string& key) {
  static const std::set<std::string> kOwn = {"flash_attention", "overlap_pipeline_transfers",
                                             "fixed_reserve",   "gpu_reserve",
                                             "nccl_connection", "optimizer_bytes_per_parameter"};
  return kOwn.contains(key);
}

// Every key of the table is the key under which the loader reads that member.
TEST(StackChanges, AChangedKeyIsTheOneThatIsNamed) {
  for (const std::string_view name : stackSettingKeys()) {
    const std::string key(name);
    const std::string_view text =
        spec::findShipped(spec::ShippedKind::kStack, isOwn(key) ? "trireme" : "nemo")->text;
    const auto before = spec::parseStack(std::string(text), "before");
    const auto after =
        spec::parseStack(withoutKey(text, key) + key + ": " + otherValue(key) + "\n", "after");
    ASSERT_TRUE(before.has_value());
    ASSERT_TRUE(after.has_value()) << key << ": " << after.error().message();
    const std::vector<std::string> lines = stackChanges(*before, *after);
    ASSERT_EQ(lines.size(), 1u) << key;
    EXPECT_EQ(lines[0].rfind(key + " ", 0), 0u) << lines[0];
  }
}

// What no cost follows from is not compared: the settings of the program itself.
TEST(StackChanges, NoKeyOfStackFilesIsForgotten) {
  std::set<std::string> known = {"overlap_reductions",  // a choice
                                 "name",
                                 "caution",
                                 "programs",
                                 "choices",
                                 "precisions",
                                 "fp8_recipe",
                                 "compiled",
                                 "async_tensor_parallel"};
  for (const std::string_view key : stackSettingKeys()) known.insert(std::string(key));
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kStack)) {
    std::istringstream in{std::string(spec::findShipped(spec::ShippedKind::kStack, name)->text)};
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#' || line[0] == ' ') continue;
      EXPECT_TRUE(known.contains(line.substr(0, line.find(':')))) << name << ": " << line;
    }
  }
}

TEST(StackChanges, OfShippedStacksThereAreNoneOnlyOfEqualOnes) {
  const std::vector<spec::StackProfile> stacks = shippedStacks().value();
  for (const spec::StackProfile& a : stacks)
    for (const spec::StackProfile& b : stacks)
      EXPECT_EQ(stackChanges(a, b).empty(),
                a.description == b.description && a.choices == b.choices &&
                    a.precisions == b.precisions && a.ownPrograms == b.ownPrograms)
          << a.name << ", " << b.name;
}

TEST(StackChanges, ByHand) {
  spec::StackProfile before;
  before.ownPrograms = false;
  before.choices = {spec::StackChoice::kPipeline, spec::StackChoice::kTensorParallel};
  before.precisions = {spec::Precision::kBf16};
  spec::StackProfile after = before;
  after.choices = {spec::StackChoice::kPipeline, spec::StackChoice::kContextParallel};
  after.precisions = {spec::Precision::kFp16, spec::Precision::kBf16};
  after.description.hostLaunch = Seconds(9e-6);
  after.description.gradientBytes = 2;
  after.description.attention = spec::AttentionKind::kCudnn;
  EXPECT_THAT(stackChanges(before, after),
              ElementsAre("attention flash -> cudnn", "gradient_bytes 4 -> 2",
                          "host_launch 0 s -> 9 us", "choices only before: tensor_parallel",
                          "choices only after: context_parallel", "precisions only after: fp16"));
  after.ownPrograms = true;
  EXPECT_EQ(stackChanges(before, after)[0], "programs described -> own");
}

// Of own programs the key is one of their choices.
TEST(StackChanges, OverlappingReductionsIsAChoice) {
  const std::string text(spec::findShipped(spec::ShippedKind::kStack, "trireme")->text);
  const auto before = spec::parseStack(text, "before");
  const auto after = spec::parseStack(
      withoutKey(text, "overlap_reductions") + "overlap_reductions: false\n", "after");
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_THAT(stackChanges(*before, *after),
              ElementsAre("choices only before: overlap_reductions"));
}

// 100 TFLOP/s x 0.8 = 80, 200 x 0.5 = 100: a quarter more, though the peak is twice as high.
TEST(ClusterChanges, AMatmulRateIsWhatIsReached) {
  Query before = smallQuery();
  before.training.precision = spec::Precision::kFp32;
  before.cluster.device.matmul = {{MathFormat::kF32, FlopsPerSecond(100e12)}};
  before.cluster.device.matmulEfficiency = 0.8;
  Query after = before;
  EXPECT_THAT(clusterChanges(before, after), IsEmpty());
  after.cluster.device.matmul[0].rate = FlopsPerSecond(200e12);
  after.cluster.device.matmulEfficiency = 0.5;
  EXPECT_THAT(clusterChanges(before, after),
              ElementsAre("matmul rate 100 TFLOP/s -> 200 TFLOP/s (x 2)",
                          "matmul efficiency 0.8 -> 0.5 (x 0.625)",
                          "matmul rate that is reached 80 TFLOP/s -> 100 TFLOP/s (x 1.25)"));
}

// The head stays in bf16: its rate is another line, and the efficiency is that of f8.
TEST(ClusterChanges, Fp8HasRatesOfItsOwn) {
  Query before = smallQuery();
  before.training.precision = spec::Precision::kFp8;
  spec::DeviceSpec& device = before.cluster.device;
  device.matmul = {{MathFormat::kBf16, FlopsPerSecond(100e12)},
                   {MathFormat::kF8, FlopsPerSecond(200e12)}};
  device.f8MatmulEfficiency = 0.5;
  Query after = before;
  after.cluster.device.matmul[0].rate = FlopsPerSecond(150e12);
  after.cluster.device.f8MatmulEfficiency = 0.25;
  EXPECT_THAT(clusterChanges(before, after),
              ElementsAre("matmul efficiency 0.5 -> 0.25 (x 0.5)",
                          "matmul rate that is reached 100 TFLOP/s -> 50 TFLOP/s (x 0.5)",
                          "matmul rate of head and attention 100 TFLOP/s -> 150 TFLOP/s (x 1.5)"));
}

TEST(ClusterChanges, AttentionIsThatOfTheSoftware) {
  Query before = smallQuery();
  before.cluster.device.attention = {{spec::AttentionKind::kFlash2, 0.4, 0.2},
                                     {spec::AttentionKind::kCudnn, 0.6, 0.5}};
  Query after = before;
  after.cluster.device.attention[0].forward = 0.5;
  EXPECT_THAT(clusterChanges(before, after), IsEmpty()) << "own programs have one efficiency";
  before.stack.ownPrograms = after.stack.ownPrograms = false;
  before.stack.description.attention = spec::AttentionKind::kFlash2;
  after.stack.description.attention = spec::AttentionKind::kFlash2;
  EXPECT_THAT(clusterChanges(before, after),
              ElementsAre("attention efficiency, forward 0.4 -> 0.5 (x 1.25)"));
  after.stack.description.attention = spec::AttentionKind::kUnfused;
  EXPECT_THAT(clusterChanges(before, after), IsEmpty());
}

TEST(ClusterChanges, HostsOfAnotherSizeAreThere) {
  const Query before = smallQuery(16);  // nodes of 2
  Query after = before;
  after.cluster.hostDevices = 2;
  EXPECT_THAT(clusterChanges(before, after), ElementsAre("devices of a host 2 by its links -> 2"));
  after.cluster.hostDevices = 1;
  EXPECT_THAT(clusterChanges(before, after), ElementsAre("devices of a host 2 by its links -> 1"));
}

TEST(ClusterChanges, EveryNumberOfDeviceAndLinksIsThere) {
  Query before = smallQuery();
  spec::DeviceSpec& device = before.cluster.device;
  device.memory = Bytes(100e9);
  device.launchOverhead = Seconds(2e-6);
  spec::LinkTier& tier = before.cluster.tiers[0];
  tier.name = "link";
  tier.devices = 8;
  tier.latency = Seconds(1e-6);
  tier.pairBandwidth = BytesPerSecond(1e9);
  Query after = before;
  spec::DeviceSpec& d = after.cluster.device;
  d.memoryEfficiency = device.memoryEfficiency / 2;
  d.memory = Bytes(99.99e9);
  d.launchOverhead = Seconds(3e-6);
  d.numMultiprocessors = 132;
  d.kernels = {{}};
  spec::LinkTier& t = after.cluster.tiers[0];
  t.devices = 72;
  t.topology = spec::TierTopology::kMesh;
  t.oversubscription = 2;
  t.nics = 4;
  t.pairBandwidth = BytesPerSecond(156.25e6);
  t.latency = Seconds(0.5e-6);
  t.curves = {{}};
  after.cluster.tiers.pop_back();
  const std::string lost = before.cluster.tiers[1].name;
  const std::vector<std::string> lines = clusterChanges(before, after);
  for (const char* line :
       {"memory 100 GB -> 99.99 GB", "launch overhead 2 us -> 3 us (x 1.5)",
        "multiprocessors 0 -> 132", "measured kernels 0 -> 1", "devices of a host 8 -> 1",
        "link domain, devices 8 -> 72 (x 9)", "link topology switch -> mesh",
        "link oversubscription 1 -> 2 (x 2)", "link ports 0 -> 4",
        "link pair bandwidth 1 GB/s -> 156.25 MB/s (x 0.156)",
        "link latency 1 us -> 500 ns (x 0.5)", "link measured collectives 0 -> 1"})
    EXPECT_THAT(lines, ::testing::Contains(line));
  EXPECT_THAT(lines, ::testing::Contains(::testing::StartsWith("memory efficiency ")));
  EXPECT_THAT(lines.back(), ::testing::StartsWith("link " + lost + " ("));
  EXPECT_THAT(lines.back(), ::testing::EndsWith(" only before"));
  EXPECT_EQ(lines.size(), 14u) << ::testing::PrintToString(lines);
}

// Pairs in the machines of before, and another network.
TEST(ClusterChanges, TiersAreComparedByTheirNames) {
  Query before = smallQuery(8), after = before;
  std::vector<spec::LinkTier>& tiers = after.cluster.tiers;
  before.cluster.tiers[0].name = tiers[0].name = "pcie";
  before.cluster.tiers[1].name = "ethernet";
  tiers[1].name = "infiniband";
  tiers[1].bandwidth = before.cluster.tiers[1].bandwidth * 2;
  tiers.insert(tiers.begin(), tiers[0]);
  tiers[0].name = "bridge";
  EXPECT_THAT(clusterChanges(before, after),
              ::testing::ElementsAre("link ethernet -> infiniband",
                                     ::testing::StartsWith("ethernet/infiniband bandwidth "),
                                     ::testing::StartsWith("link bridge (")));
}

TEST(PlanChanges, ByHand) {
  plan::Plan before;
  before.layers = plan::evenLayers(4, 1, 1);
  plan::Plan after = before;
  EXPECT_THAT(planChanges(before, after), IsEmpty());
  after.pp = 2;
  after.layers = plan::evenLayers(4, 2, 1);
  after.stateSharding = plan::StateSharding::kParameters;
  after.sequenceParallel = true;
  after.training.residualDropout = 0.1;
  EXPECT_THAT(planChanges(before, after),
              ElementsAre("pp 1 -> 2", "state_sharding none -> parameters",
                          "sequence_parallel false -> true", "layers 4 -> 2 (x 2)",
                          "residual_dropout 0 -> 0.1"));
}

}  // namespace
}  // namespace trireme::planner
