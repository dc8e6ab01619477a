#include "planner/question.h"

#include <gtest/gtest.h>

#include "ir/spec/load.h"

namespace trireme::planner {
namespace {

TEST(OwnStack, IsTheShippedProfile) {
  spec::StackProfile shipped = spec::loadStack("trireme").value();
  shipped.sources.clear();
  EXPECT_EQ(ownStack(), shipped);
}

// 9 racks of 72: 1,000 devices are a part of 14, as 500 are of the 9.
TEST(GrowCluster, AddsWholeGroups) {
  spec::ClusterSpec cluster = spec::loadCluster("gb200-nvl72").value();
  const int64_t rack = cluster.tiers[0].devices;
  ASSERT_EQ(rack, 72);
  ASSERT_TRUE(growCluster(1000, "gb200-nvl72", cluster).ok());
  EXPECT_EQ(cluster.numDevices, 14 * rack);
  EXPECT_EQ(cluster.tiers.back().devices, 14 * rack);
  ASSERT_TRUE(growCluster(500, "gb200-nvl72", cluster).ok());
  EXPECT_EQ(cluster.numDevices, 14 * rack);
}

}  // namespace
}  // namespace trireme::planner
