#include "tests/support/launch_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/cuda/gpu.h"

namespace trireme::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(LaunchBounds, AreThoseBetweenTheNameAndTheBody) {
  EXPECT_THAT(launchBoundsOf(".visible .entry a(\n.param .align 8 .b8 a_0[96]\n)\n"
                             ".maxntid 256, 1, 1\n{\nret;\n}\n"
                             ".visible .entry b(\n)\n{\nret;\n}\n"
                             ".visible .entry c()\n.maxntid 1024, 1, 1\n.minnctapersm 2\n{}\n"),
              ElementsAre(Pair("a", 256u), Pair("c", 1024u)));
}

// The emulated GPU refuses what a GPU would: the forward and both passes of the backward, with and
// without dropout, for three sizes of heads in two types.
TEST(LaunchBounds, OfAttentionOnTensorCoresAreKnown) {
  if (runtime::cuda::shippedImages().empty()) GTEST_SKIP() << "built without nvcc";
  size_t tiles = 0;
  for (const auto& [name, threads] : launchBounds()) tiles += name.find("_tiles_") != name.npos;
  EXPECT_EQ(tiles, 3u * 2 * 3 * 2);
}

}  // namespace
}  // namespace trireme::testing
