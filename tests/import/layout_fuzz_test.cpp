// Damaged layouts of Megatron-LM: the layers of the model in whole numbers, or an error that says
// why; repetitions never lead to large allocations. Deterministic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "codegen/import/layout.h"
#include "tests/support/damaged_text.h"

namespace trireme::codegen {
namespace {

TEST(LayoutFuzz, LayersAddUpOrTheLayoutIsRefused) {
  int numRead = 0, numRefused = 0;
  const auto check = [&](const std::string& text) {
    const auto layers = parseLayout(text, 9);
    if (!layers.has_value()) {
      ++numRefused;
      EXPECT_EQ(layers.error().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(layers.error().message(), ::testing::StartsWith("is "));
      EXPECT_LT(layers.error().message().size(), 1000u);
      return;
    }
    ++numRead;
    for (const int64_t count : *layers) EXPECT_GE(count, 0) << text;
    EXPECT_EQ(std::accumulate(layers->begin(), layers->end(), int64_t{0}), 9) << text;
  };
  const char* const kNumbers[] = {"0", "1", "2", "9", "65536", "99999999999999999999", "-1", ""};
  for (const char* valid : {"Et*3,t|(tt|)*2,tL", "E|(t*3|)*3L", "Ett|ttt|tt|ttL"}) {
    check(valid);
    damageBytes(valid, "Et*|(),L0123456789m \n\x7f\xff", 5000, 3, check);
    damageNumbers(valid, kNumbers, check);
    endEarly(valid, 1, check);
  }
  EXPECT_GT(numRead, 200);
  EXPECT_GT(numRefused, 5000);
}

}  // namespace
}  // namespace trireme::codegen
