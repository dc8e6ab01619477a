#include "runtime/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::runtime {
namespace {

TEST(FastExp, IsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87.0f; x <= 87.0f; x += 0.00937f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(fastExp(x) / exact, 1.0, 2.4e-7) << x;
  }
  EXPECT_EQ(fastExp(0.0f), 1.0f);
}

TEST(FastExp, FarBelowIsNearlyZeroAndNanStays) {
  EXPECT_LT(fastExp(-1e30f), 1e-37f);
  EXPECT_LT(fastExp(-std::numeric_limits<float>::infinity()), 1e-37f);
  EXPECT_TRUE(std::isnan(fastExp(std::numeric_limits<float>::quiet_NaN())));
}

// bf16 keeps 8 bits: between 1 and 2 the step is 2^-7, and 1 + 2^-8 is a tie, which goes to even.
TEST(Bf16, RoundsTiesToEven) {
  EXPECT_EQ(toFloat(toBf16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(toFloat(toBf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(toFloat(toBf16(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isnan(toFloat(toBf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(toFloat(toBf16(3.4e38f)), std::numeric_limits<float>::infinity());
}

// 1 + 2^-8 + 2^-40 is above the tie, but its nearest float is the tie itself.
TEST(Bf16, DoublesAreRoundedOnce) {
  EXPECT_EQ(toFloat(toBf16(1.0 + 0x1p-8 + 0x1p-40)), 1.0f + 0x1p-7f);
  EXPECT_EQ(toFloat(toBf16(-1.0 - 0x3p-8 + 0x1p-40)), -1.0f - 0x1p-7f);
}

}  // namespace
}  // namespace trireme::runtime
