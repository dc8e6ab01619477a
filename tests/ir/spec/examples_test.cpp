// Every file under examples/ loads, so none can fall behind the loaders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {

std::vector<std::string> filesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(examplePath(folder)))
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Examples, ModelsLoadAndRoundTrip) {
  const std::vector<std::string> paths = filesIn("models");
  EXPECT_GE(paths.size(), 10u);
  for (const std::string& path : paths) {
    const Result<ModelSpec> model = loadModel(path);
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    EXPECT_EQ(parseModel(printModel(*model), path).value(), *model);
  }
}

TEST(Examples, ClustersLoadAndResize) {
  for (const std::string& path : filesIn("clusters")) {
    const Result<ClusterSpec> cluster = loadCluster(path);
    ASSERT_TRUE(cluster.has_value()) << messageOf(cluster);
    EXPECT_TRUE(withNumDevices(*cluster, 8).has_value()) << path;
    EXPECT_TRUE(withNumDevices(*cluster, 1024).has_value()) << path;
  }
}

TEST(Examples, StacksLoad) {
  for (const std::string& path : filesIn("stacks")) {
    const Result<StackProfile> stack = loadStack(path);
    ASSERT_TRUE(stack.has_value()) << messageOf(stack);
  }
}

// What a planner gets without a stack file is what the file says.
TEST(Examples, TriremeStackIsTheDefaultProfile) {
  EXPECT_EQ(loadStack(examplePath("stacks/trireme.yaml")).value(), StackProfile{});
}

TEST(Examples, QuickstartFitsTogether) {
  const Result<ModelSpec> model = loadModel(examplePath("quickstart/model.yaml"));
  ASSERT_TRUE(model.has_value()) << messageOf(model);
  const Result<TrainingSpec> training = loadTraining(examplePath("quickstart/train.yaml"));
  ASSERT_TRUE(training.has_value()) << messageOf(training);
  const Status fits = verifyTraining(*training, *model);
  EXPECT_TRUE(fits.ok()) << fits.message();
  const Result<ClusterSpec> cluster = loadCluster(examplePath("quickstart/cluster.yaml"));
  ASSERT_TRUE(cluster.has_value()) << messageOf(cluster);
  EXPECT_EQ(cluster->numDevices, 8);
  EXPECT_EQ(cluster->device.kind, DeviceKind::kHost);
  const Result<ClusterSpec> one = loadCluster(examplePath("quickstart/one_device.yaml"));
  ASSERT_TRUE(one.has_value()) << messageOf(one);
  EXPECT_EQ(one->numDevices, 1);
}

}  // namespace
}  // namespace trireme::spec
