#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/program/text.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

using ::testing::HasSubstr;

TEST(Listing, ShowsTasksBodiesAndNames) {
  const std::string text = printListing(trireme::testing::buildPipeline({2, 2, 1, 1, 2, 3}));
  EXPECT_THAT(text, HasSubstr("role stage0 (pipeline rank 0, ranks 0-1)"));
  EXPECT_THAT(text, HasSubstr("tasks begin F0.0 F0.1 B0.0 F0.2 B0.1 B0.2 step\n"));
  EXPECT_THAT(text, HasSubstr("tasks begin F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 step\n"));
  EXPECT_THAT(
      text,
      HasSubstr("recv_forward   recv chunk0.input from stage 0, tag virtual stage 0 signals"));
  EXPECT_THAT(text,
              HasSubstr("layer.forward(chunk0.x, chunk0.w1, chunk0.w2, chunk0.u, chunk0.x.next)"));
  EXPECT_THAT(text, HasSubstr("all_reduce sum chunk0.x.next over tp"));
  EXPECT_THAT(text, HasSubstr("repeat 2 x (last layer first)"));
  EXPECT_THAT(text, HasSubstr("%3 = matmul %0, %1"));
}

// Listings are for looking at broken programs, too.
TEST(Listing, SurvivesIndicesThatDoNotExist) {
  Program p = trireme::testing::buildPipeline({1, 2, 1, 1, 1, 2});
  for (Instruction& in : p.roles[0].bodies[2].instructions) {
    in.segment = 1000;
    in.bucket = -7;
    for (int32_t& b : in.buffers) b = -1;
  }
  p.roles[0].tasks[0].body = 77;
  p.segments[0].temporary.clear();
  EXPECT_THAT(printListing(p), HasSubstr("?-1"));
}

}  // namespace
}  // namespace trireme::program
