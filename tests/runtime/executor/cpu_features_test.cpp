#include "runtime/executor/cpu_features.h"

#include <gtest/gtest.h>

namespace trireme::runtime {
namespace {

TEST(CheckTarget, ABundleWithoutKernelsNeedsNothing) { EXPECT_TRUE(checkTarget({}).ok()); }

TEST(CheckTarget, AnotherArchitectureIsNamed) {
  const Status status = checkTarget({.arch = "riscv64", .cpuFeatures = {}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("are for riscv64, this machine is "), std::string::npos)
      << status.message();
}

#if defined(__x86_64__)
// LLVM calls 64bit what Linux calls lm.
TEST(CheckTarget, EveryFeatureThatTheMachineLacksIsNamedAndNoOther) {
  EXPECT_TRUE(checkTarget({"x86-64", {"sse2", "64bit"}}).ok());
  const Status status = checkTarget({"x86-64", {"sse2", "avx99f", "64bit", "no-such"}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the bundle's kernels need CPU features that this machine lacks: avx99f no-such");
}
#endif

}  // namespace
}  // namespace trireme::runtime
