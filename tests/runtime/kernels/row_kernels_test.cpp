#include "runtime/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

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

// Every number that f16 has: sign, 5 bits of exponent (bias 15), 10 of mantissa.
TEST(F16, EveryNumberIsReadAndWritten) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 half{static_cast<uint16_t>(bits)};
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits >> 15 != 0 ? -1 : 1;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(toFloat(half)));
      EXPECT_TRUE(std::isnan(toFloat(toF16(toFloat(half)))));
      continue;
    }
    const double value = exponent == 31  ? sign * HUGE_VAL
                         : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                                         : sign * std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(toFloat(half), value) << bits;
    ASSERT_EQ(toF16(toFloat(half)).bits, bits);
  }
}

// Between two neighbours: below the middle to the lower, above it to the upper, at it to the even.
TEST(F16, RoundsToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = toFloat(F16{static_cast<uint16_t>(bits)});
    const double next = bits == 0x7BFF ? 65536 : toFloat(F16{static_cast<uint16_t>(bits + 1)});
    const double middle = (low + next) / 2, step = next - low;
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(toF16(static_cast<float>(middle)).bits, even) << bits;
    ASSERT_EQ(toF16(static_cast<float>(middle - step / 64)).bits, bits) << bits;
    ASSERT_EQ(toF16(static_cast<float>(middle + step / 64)).bits, bits + 1) << bits;
    ASSERT_EQ(toF16(static_cast<float>(-middle)).bits, even | 0x8000u) << bits;
    // A double that is nearer to the middle than a float can say.
    ASSERT_EQ(toF16(middle * (1 - 0x1p-40)).bits, bits) << bits;
    ASSERT_EQ(toF16(middle * (1 + 0x1p-40)).bits, bits + 1) << bits;
  }
  EXPECT_EQ(toFloat(toF16(1e30f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(toFloat(toF16(1e-30f)), 0);
  EXPECT_EQ(toF16(-1e-30f).bits, 0x8000);
}

// The loops are compiled for several instruction sets, with remainders.
TEST(F16, RowsAreConvertedAsElements) {
  for (int64_t n : {1, 31, 77}) {
    std::vector<float> wide(static_cast<size_t>(n)), back(wide.size());
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i] = std::ldexp(1.0F + static_cast<float>(i) / 128, static_cast<int>(i) - 30);
    std::vector<F16> halves(wide.size());
    rowNarrow(wide.data(), n, halves.data());
    rowWiden(halves.data(), n, back.data());
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(halves[i].bits, toF16(wide[i]).bits) << i;
      EXPECT_EQ(back[i], toFloat(halves[i])) << i;
    }
  }
}

}  // namespace
}  // namespace trireme::runtime
