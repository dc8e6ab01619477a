#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using namespace trireme::literals;

const char* kStack =
    "name: s\n"
    "flash_attention: false\n"
    "overlap_gradient_reduction: true\n"
    "overlap_pipeline_transfers: false\n"
    "fixed_reserve: {value: 2 GiB, source: a}\n";

TEST(ParseStack, ReadsEveryChoice) {
  const StackProfile s = parseStack(kStack, "s.yaml").value();
  EXPECT_EQ(s, (StackProfile{.name = "s",
                             .flashAttention = false,
                             .optimizerBytesPerParameter = 0,
                             .overlapGradientReduction = true,
                             .overlapPipelineTransfers = false,
                             .fixedReserve = 2_GiB}));
}

TEST(ParseStack, OptimizerBytesNeedASource) {
  const std::string key = "optimizer_bytes_per_parameter: ";
  EXPECT_THAT(messageOf(parseStack(kStack + key + "12\n", "s.yaml")),
              HasSubstr("s.yaml:6:32: optimizer_bytes_per_parameter: a number needs a source"));
  EXPECT_EQ(
      parseStack(kStack + key + "{value: 12, source: a}\n", "s.yaml")->optimizerBytesPerParameter,
      12);
}

TEST(ParseStack, NothingIsDefaulted) {
  EXPECT_EQ(messageOf(parseStack("name: s\n", "s.yaml")),
            "s.yaml:1:1: flash_attention, overlap_gradient_reduction, overlap_pipeline_transfers, "
            "fixed_reserve: missing");
}

}  // namespace
}  // namespace trireme::spec
