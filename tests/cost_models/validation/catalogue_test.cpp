#include "cost_models/validation/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cost_models/validation/rows.h"

namespace trireme::cost {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kGbit = 1e9 / 8;

spec::ClusterSpec namedCluster(const std::string& name, const std::string& device, double gib,
                               int64_t node, double networkGbits) {
  spec::ClusterSpec cluster;
  cluster.name = name;
  cluster.device.name = device;
  cluster.device.memory = Bytes(gib * (1 << 30));
  cluster.numDevices = node * 8;
  cluster.tiers.push_back({"nvlink", node, BytesPerSecond(300e9), Seconds(1e-6)});
  cluster.tiers.push_back({"ib", node * 8, BytesPerSecond(networkGbits * kGbit), Seconds(1e-5)});
  return cluster;
}

std::vector<spec::ClusterSpec> clusters() {
  return {namedCluster("a100-slow", "A100-80GB-SXM", 80, 8, 50),
          namedCluster("a100-fast", "A100-80GB-SXM", 80, 8, 200),
          namedCluster("a100-40", "A100-40GB-SXM", 40, 8, 200),
          namedCluster("a100-pcie", "A100-80GB-PCIe", 80, 8, 100),
          namedCluster("dgx-2", "V100-32GB-SXM3", 32, 16, 50),
          namedCluster("dgx-1", "V100-16GB-SXM2", 16, 8, 50),
          namedCluster("h100", "H100-80GB-SXM5", 80, 8, 400),
          namedCluster("h100-hbm2e", "H100-96GB-HBM2e-SXM5", 96, 8, 400),
          namedCluster("nvl72", "GB200-186GB", 186, 72, 400)};
}

Row onGpu(const std::string& gpu) {
  Row row;
  row.gpu = gpu;
  row.gpus = 64;
  return row;
}

std::string nameFor(const Row& row) {
  const Result<spec::ClusterSpec> cluster = clusterFor(row, clusters());
  return cluster.has_value() ? cluster->name : cluster.error().message();
}

TEST(GpuName, IsChipMemoryAndKinds) {
  const GpuName h100 = parseGpuName("NVIDIA H100-96GB-HBM2e-SXM (500W)");
  EXPECT_EQ(h100.chip, "H100");
  EXPECT_EQ(h100.memoryGb, 96);
  EXPECT_THAT(h100.kinds, ElementsAre("HBM2E", "SXM"));
  EXPECT_EQ(parseGpuName("Tesla V100-SXM2-16GB").chip, "V100");
  EXPECT_EQ(parseGpuName("RTX 4090").chip, "RTX4090");
  const GpuName vague = parseGpuName("A100 (memory size: not in the file)");
  EXPECT_EQ(vague.chip, "A100");
  EXPECT_EQ(vague.memoryGb, 0);
  EXPECT_THAT(vague.kinds, IsEmpty());
  EXPECT_EQ(parseGpuName("GB200-192GB").chip, "GB200");
  EXPECT_EQ(parseGpuName("GB200-192GB").memoryGb, 192);
  EXPECT_EQ(parseGpuName("GB200 NVL72").chip, "GB200");
  EXPECT_EQ(parseGpuName("H100 NVL").chip, "H100NVL");  // another card than the H100
}

TEST(C1GpuIsTheRows, ChipMemoryAndForm) {
  EXPECT_EQ(nameFor(onGpu("A100-40GB-SXM")), "a100-40");
  EXPECT_EQ(nameFor(onGpu("A100-80GB-PCIe")), "a100-pcie");
  EXPECT_EQ(nameFor(onGpu("H100-96GB-HBM2e-SXM (500W)")), "h100-hbm2e");
  EXPECT_EQ(nameFor(onGpu("H100-80GB-SXM")), "h100");
  // 192 GB are 186 within a tenth: makers count what they build in, drivers what is left.
  Row nvl = onGpu("GB200-192GB");
  nvl.gpus = 144;
  EXPECT_EQ(nameFor(nvl), "nvl72");
  EXPECT_THAT(nameFor(onGpu("H100-64GB-SXM")),
              HasSubstr("gpu 'H100-64GB-SXM': no cluster has one; nearest: H100-80GB-SXM5, "
                        "H100-96GB-HBM2e-SXM5"));
}

TEST(C1GpuIsTheRows, UnknownOnesGetTheNearestNames) {
  EXPECT_EQ(nameFor(onGpu("H101-80GB-SXM")),
            "gpu 'H101-80GB-SXM': no cluster has one; nearest: H100-80GB-SXM5, "
            "H100-96GB-HBM2e-SXM5");
}

TEST(C2BestOfSeveral, HasTheNearestNetwork) {
  Row row = onGpu("A100-80GB-SXM");
  row.interNodeGbpsPerGpu = 60;
  EXPECT_EQ(nameFor(row), "a100-slow");
  row.interNodeGbpsPerGpu = 190;
  EXPECT_EQ(nameFor(row), "a100-fast");
}

TEST(C2BestOfSeveral, UnpublishedNetworkIsTheFastestAndMemoryTheLargest) {
  EXPECT_EQ(nameFor(onGpu("A100-80GB-SXM")), "a100-fast");
  EXPECT_EQ(nameFor(onGpu("A100 (memory size: not in the file)")), "a100-fast");
}

TEST(C2BestOfSeveral, HasMachinesOfTheSameSize) {
  Row row = onGpu("V100");
  row.gpusPerNode = 8;
  // The larger memory comes first.
  EXPECT_EQ(nameFor(row), "dgx-2");
  row.gpu = "V100-16GB-SXM";
  EXPECT_EQ(nameFor(row), "dgx-1");
}

// Two clusters have the H100 of 80 GB and one that of 96; two the A100 of 80, and one each of
// others.
TEST(C2BestOfSeveral, PlainNameIsTheCommonPart) {
  std::vector<spec::ClusterSpec> known = clusters();
  known.push_back(namedCluster("h100-too", "H100-80GB-SXM5", 80, 8, 100));
  for (const char* name : {"H100", "h100", "H100 SXM"})
    EXPECT_EQ(clusterFor(onGpu(name), known)->name, "h100") << name;
  EXPECT_EQ(clusterFor(onGpu("H100 HBM2e"), known)->name, "h100-hbm2e");
  const Result<Catalogue> shipped = loadCatalogue("", "");
  Row row = onGpu("H100");
  EXPECT_EQ(clusterFor(row, shipped->clusters)->device.name, "H100-80GB-SXM");
  row.gpu = "A100";
  EXPECT_EQ(clusterFor(row, shipped->clusters)->device.name, "A100-80GB-SXM");
}

TEST(C1GpuIsTheRows, ShippedOnesHaveTheNamesOfTheirVendor) {
  const Result<Catalogue> shipped = loadCatalogue("", "");
  const auto clusterOf = [&](const std::string& gpu) {
    const Result<spec::ClusterSpec> cluster = clusterFor(onGpu(gpu), shipped->clusters);
    return cluster.has_value() ? cluster->name : "";
  };
  EXPECT_EQ(clusterOf("Tesla P100-SXM2-16GB"), "dgx-1p");
  EXPECT_EQ(clusterOf("NVIDIA A10G"), "a10g");
  EXPECT_EQ(clusterOf("A40"), "a40");
  EXPECT_EQ(clusterOf("L40S 48GB"), "l40s");
  EXPECT_EQ(clusterOf("H100 PCIe"), "h100-pcie");
  EXPECT_EQ(clusterOf("NVIDIA H100 NVL"), "h100-nvl");
  EXPECT_EQ(clusterOf("A800-SXM4-80GB"), "hgx-a800");
  EXPECT_EQ(clusterOf("H800"), "hgx-h800");
  EXPECT_EQ(clusterOf("H20 96GB"), "hgx-h20");
  EXPECT_EQ(clusterOf("NVIDIA GeForce RTX 3090"), "rtx3090");
  EXPECT_EQ(clusterOf("H20 141GB"), "");
  EXPECT_EQ(clusterOf("P100-PCIE-16GB"), "");
  Row row = onGpu("H100 80GB HBM3");
  row.interNodeGbpsPerGpu = 100;  // that of h100-pcie
  EXPECT_EQ(clusterFor(row, shipped->clusters)->device.name, "H100-80GB-SXM");
}

TEST(C3PublishedNetwork, IsTheLineRateBehindTheNode) {
  std::vector<spec::ClusterSpec> known = clusters();
  for (spec::ClusterSpec& cluster : known)
    for (spec::LinkTier& tier : cluster.tiers) {
      tier.efficiency = 0.9;
      tier.curves.push_back(
          {spec::CollectiveKind::kAllReduce, 8, {{Bytes(1e6), BytesPerSecond(1e9)}}, "here"});
    }
  Row row = onGpu("A100-80GB-SXM");
  row.interNodeGbpsPerGpu = 100;
  const Result<spec::ClusterSpec> cluster = clusterFor(row, known);
  ASSERT_TRUE(cluster.has_value());
  EXPECT_DOUBLE_EQ(cluster->tiers[0].bandwidth.count(), 300e9);
  EXPECT_DOUBLE_EQ(cluster->tiers[1].bandwidth.count(), 100 * kGbit);
  EXPECT_DOUBLE_EQ(cluster->tiers[1].efficiency, 0.9);
  EXPECT_EQ(cluster->tiers[0].curves.size(), 1u);
  EXPECT_THAT(cluster->tiers[1].curves, IsEmpty());  // measured at another rate
  row.interNodeGbpsPerGpu = 200;
  EXPECT_EQ(clusterFor(row, known)->tiers[1].curves.size(), 1u);
}

TEST(C4SmallerNodes, ShrinkTheFirstTierButNoRack) {
  Row row = onGpu("A100-80GB-SXM");
  row.gpusPerNode = 4;
  EXPECT_EQ(clusterFor(row, clusters())->tiers[0].devices, 4);
  row.gpusPerNode = 16;
  EXPECT_EQ(nameFor(row),
            "gpus_per_node 16: no cluster has as many A100-80GB-SXM in a node; nearest: 8 "
            "(a100-fast)");
  row = onGpu("GB200-186GB");
  row.gpus = 144;
  row.gpusPerNode = 4;
  EXPECT_EQ(clusterFor(row, clusters())->tiers[0].devices, 72);
}

// Pairs, and four of them to a node of eight.
TEST(C4SmallerNodes, MayHaveTiersWithin) {
  spec::ClusterSpec pairs = namedCluster("pairs", "H100-NVL-94GB", 94, 8, 200);
  pairs.tiers.insert(pairs.tiers.begin(), {"bridge", 2, BytesPerSecond(600e9), Seconds(1e-6)});
  pairs.hostDevices = 8;
  Row row = onGpu("H100 NVL");
  row.gpusPerNode = 8;
  row.interNodeGbpsPerGpu = 50;
  const Result<spec::ClusterSpec> eight = clusterFor(row, {pairs});
  ASSERT_TRUE(eight.has_value());
  EXPECT_EQ(eight->tiers[0].devices, 2);
  EXPECT_EQ(eight->tiers[1].devices, 8);
  EXPECT_DOUBLE_EQ(eight->tiers[1].bandwidth.count(), 300e9);
  EXPECT_DOUBLE_EQ(eight->tiers[2].bandwidth.count(), 50 * kGbit);
  row.gpusPerNode = 4;
  EXPECT_EQ(clusterFor(row, {pairs})->tiers[0].devices, 2);
  EXPECT_EQ(clusterFor(row, {pairs})->tiers[1].devices, 4);
  EXPECT_EQ(clusterFor(row, {pairs})->hostDevices, 4);
  row.gpusPerNode = 16;
  EXPECT_THAT(clusterFor(row, {pairs}).error().message(), HasSubstr("nearest: 8 (pairs)"));
}

TEST(C5PartOfATier, IsFilledEvenly) {
  const auto devicesOf = [](const std::string& gpu, int64_t gpus) {
    Row row = onGpu(gpu);
    row.gpus = gpus;
    const Result<spec::ClusterSpec> cluster = clusterFor(row, clusters());
    EXPECT_TRUE(cluster.has_value());
    EXPECT_EQ(cluster->numDevices, gpus);
    return cluster->tiers[0].devices;
  };
  EXPECT_EQ(devicesOf("GB200-186GB", 128), 64);
  EXPECT_EQ(devicesOf("GB200-186GB", 144), 72);
  EXPECT_EQ(devicesOf("GB200-186GB", 8), 8);
  EXPECT_EQ(devicesOf("A100-80GB-SXM", 12), 6);
  EXPECT_EQ(devicesOf("A100-80GB-SXM", 1), 1);
  EXPECT_EQ(devicesOf("A100-80GB-SXM", 3072), 8);
}

TEST(ProfileNames, AreTheStackAndWhatChangesTheProgram) {
  Row row;
  row.stack = "megatron-core";
  EXPECT_THAT(profileNames(row), ElementsAre("megatron-core"));
  row.year = 2023;  // (S1)
  EXPECT_THAT(profileNames(row), ElementsAre("megatron-core-2023", "megatron-core"));
  row.schedule = "ZB-1p";  // (S6)
  EXPECT_EQ(profileNames(row).front(), "megatron-core-2023-zero-bubble");
  row.schedule.clear();
  row.stack = "nemo";
  EXPECT_THAT(profileNames(row), ElementsAre("nemo-2023", "nemo"));
  row.stack = "megatron-core";
  row.year = 2024;
  EXPECT_THAT(profileNames(row), ElementsAre("megatron-core"));

  row.stack = "torchtitan";
  row.schedule = "FSDP1";  // (S2)
  EXPECT_THAT(profileNames(row), ElementsAre("torchtitan-fsdp1", "torchtitan"));
  row.schedule = "FSDP2";
  row.notes = "torch.compile";  // (S3)
  EXPECT_THAT(profileNames(row), ElementsAre("torchtitan-compiled", "torchtitan"));
  for (const char* notes :
       {"no AC with torch.compile", "eager no more; Compiled", "a, torch.compile",
        "No activation checkpointing. torch.compile enabled", "no prefetch + torch.compile",
        "torch.compile\nno flash", "compile is on and CUDA graphs are off"}) {
    row.notes = notes;
    EXPECT_THAT(profileNames(row).front(), "torchtitan-compiled") << notes;
  }
  for (const char* notes :
       {"without torch.compile", "no compile", "not compiled", "non-compiled",
        "doesn't use torch.compile", "torch.compile isn't used", "never compiled", "compile 0",
        "CUDA graphs and no compile", "uncompiled", "torch.compile=False", "torch.compile: off",
        "without AsyncTP or torch.compile", "a; no AsyncTP"}) {
    row.notes = notes;
    EXPECT_THAT(profileNames(row), ElementsAre("torchtitan")) << notes;
  }
  row.notes = "eager";
  EXPECT_THAT(profileNames(row), ElementsAre("torchtitan"));
  row.notes = "AsyncTP";  // (S4)
  EXPECT_THAT(profileNames(row), ElementsAre("torchtitan-compiled-async-tp", "torchtitan-compiled",
                                             "torchtitan-async-tp", "torchtitan"));

  row.stack = "nemo";  // (S5)
  row.notes = "";
  row.precision = "FP8-CS";
  EXPECT_THAT(profileNames(row), ElementsAre("nemo-fp8-current", "nemo"));
  row.precision = "MXFP8";
  EXPECT_THAT(profileNames(row), ElementsAre("nemo-fp8-mx", "nemo"));
  row.precision = "fp8(TE)";
  EXPECT_THAT(profileNames(row), ElementsAre("nemo"));
}

spec::StackProfile profile(const std::string& name) {
  spec::StackProfile stack;
  stack.name = name;
  return stack;
}

TEST(StackFor, TakesTheMostSpecificThereIsAndSaysWhatIsMissing) {
  Row row;
  row.stack = "torchtitan";
  row.notes = "AsyncTP";
  std::vector<spec::StackProfile> stacks = {profile("torchtitan"), profile("torchtitan-compiled")};
  const Result<ChosenStack> chosen = stackFor(row, stacks);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->profile.name, "torchtitan-compiled");
  EXPECT_EQ(chosen->assumption,
            "no stack profile torchtitan-compiled-async-tp: torchtitan-compiled");
  stacks.push_back(profile("torchtitan-compiled-async-tp"));
  EXPECT_EQ(stackFor(row, stacks)->assumption, "");
  row.stack = "torchtitanic";
  EXPECT_EQ(stackFor(row, stacks).error().message(),
            "stack 'torchtitanic': there is no such profile; did you mean 'torchtitan'?");
}

TEST(LoadCatalogue, ReadsEveryYamlFile) {
  const std::string examples = TRIREME_SOURCE_DIR "/examples/";
  const Result<Catalogue> catalogue = loadCatalogue(examples + "clusters", examples + "stacks");
  ASSERT_TRUE(catalogue.has_value()) << catalogue.error().message();
  const auto has = [](const auto& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
  };
  EXPECT_TRUE(has(catalogue->clusters, "dgx-a100"));
  EXPECT_TRUE(has(catalogue->stacks, "trireme"));
  // The same that the program carries, in the same order; only where a number is from is told with
  // the path of the file.
  Result<Catalogue> shipped = loadCatalogue("", "");
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message();
  ASSERT_EQ(shipped->clusters.size(), catalogue->clusters.size());
  for (size_t i = 0; i < shipped->clusters.size(); ++i) {
    shipped->clusters[i].sources = catalogue->clusters[i].sources;
    EXPECT_TRUE(shipped->clusters[i] == catalogue->clusters[i]) << catalogue->clusters[i].name;
  }
  ASSERT_EQ(shipped->stacks.size(), catalogue->stacks.size());
  for (size_t i = 0; i < shipped->stacks.size(); ++i) {
    shipped->stacks[i].sources = catalogue->stacks[i].sources;
    EXPECT_TRUE(shipped->stacks[i] == catalogue->stacks[i]) << catalogue->stacks[i].name;
  }
}

TEST(LoadCatalogue, NamesAFolderThatIsMissingOrEmpty) {
  EXPECT_THAT(loadCatalogue("/no/such/folder", "x").error().message(),
              HasSubstr("/no/such/folder: cannot read the folder: No such file"));
  const std::string empty = ::testing::TempDir() + "/trireme_catalogue_test";
  std::filesystem::create_directories(empty);
  EXPECT_EQ(loadCatalogue(empty, "x").error().message(),
            empty + ": expected .yaml files, there is none");
  std::filesystem::remove_all(empty);
}

}  // namespace
}  // namespace trireme::cost
