#include "runtime/kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

namespace trireme::runtime {
namespace {

// Every width up to several registers of every instruction set, so that every remainder occurs.
constexpr int64_t kMaxWidth = 70;

std::vector<float> between(float low, float high, int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(low + (high - low) * static_cast<float>(i * 37 % n) / static_cast<float>(n));
  return x;
}

TEST(RowExp, IsWithinAUnitInTheLastPlace) {
  const std::vector<float> x = between(-87, 87, 20000);
  std::vector<float> y(x.size());
  for (const RowKernels* kernels : rowKernelSets()) {
    kernels->expTimes(x.data(), std::ssize(x), 0, 1, y.data());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i] / std::exp(static_cast<double>(x[i])), 1.0, 1.3e-7) << x[i];
  }
}

TEST(RowExp, OfZeroIsOneFarBelowNearlyZeroAndNanStays) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0, -1e30F, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  for (const RowKernels* kernels : rowKernelSets())
    for (size_t repeats : {1, 5}) {  // in a remainder, and in whole registers
      std::vector<float> row;
      for (size_t i = 0; i < repeats; ++i) row.insert(row.end(), x.begin(), x.end());
      kernels->expTimes(row.data(), std::ssize(row), 0, 1, row.data());
      EXPECT_EQ(row[0], 1);
      EXPECT_LT(row[1], 1e-37F);
      EXPECT_LT(row[2], 1e-37F);
      EXPECT_TRUE(std::isnan(row[3]));
    }
}

// What is beyond the row is neither read into the sum nor written.
TEST(RowExp, EveryWidthIsSummedAndScaled) {
  for (const RowKernels* kernels : rowKernelSets())
    for (int64_t n = 0; n <= kMaxWidth; ++n) {
      const std::vector<float> x = between(-3, 2, kMaxWidth);
      std::vector<float> y(x.size(), -1), z(x.size(), -1);
      const float sum = kernels->expSum(x.data(), n, 0.5F, 0.25F, y.data());
      std::vector<float> inPlace = x;
      EXPECT_EQ(kernels->expSum(inPlace.data(), n, 0.5F, 0.25F, inPlace.data()), sum);
      kernels->expTimes(x.data(), n, 0.25F, 3, z.data());
      double exact = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double xi = x[i];
        if (static_cast<int64_t>(i) >= n) {
          EXPECT_EQ(y[i], -1);
          EXPECT_EQ(z[i], -1);
          continue;
        }
        exact += std::exp(0.5 * xi - 0.25);
        EXPECT_NEAR(y[i], std::exp(0.5 * xi - 0.25), 1e-6 * y[i]);
        EXPECT_NEAR(z[i], 3 * std::exp(xi - 0.25), 1e-6 * z[i]);
      }
      EXPECT_NEAR(sum, exact, 1e-6 * exact) << n;
    }
}

// Lanes are added in one order, and products without rounding in between where the machine can: of
// the sets that fuse them (all but the last) the results are the same to the bit.
TEST(RowExp, IsTheSameOfAllSetsThatFuse) {
  const auto& sets = rowKernelSets();
  if (sets.size() < 3) GTEST_SKIP() << "this CPU has no two such sets";
  const std::vector<float> x = between(-9, 1, kMaxWidth);
  for (int64_t n = 1; n <= kMaxWidth; ++n) {
    std::vector<float> first(x.size()), other(x.size());
    const float sum = sets[0]->expSum(x.data(), n, 1, 0.5F, first.data());
    for (size_t i = 1; i + 1 < sets.size(); ++i) {
      EXPECT_EQ(sets[i]->expSum(x.data(), n, 1, 0.5F, other.data()), sum);
      EXPECT_EQ(other, first);
    }
  }
}

template <typename T>
void expectDots(float (*RowKernels::*dot)(const T*, const T*, int64_t)) {
  std::vector<T> x, y;
  for (float value : between(-3, 2, kMaxWidth)) x.push_back(narrow<T>(value));
  for (float value : between(-1, 4, kMaxWidth)) y.push_back(narrow<T>(value * value));
  for (int64_t n = 0; n <= kMaxWidth; ++n) {
    double exact = 0, size = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const double product = static_cast<double>(widen(x[i])) * widen(y[i]);
      exact += product;
      size += std::abs(product);
    }
    for (const RowKernels* kernels : rowKernelSets())
      EXPECT_NEAR((kernels->*dot)(x.data(), y.data(), n), exact, 1e-6 * size) << n;
  }
}

TEST(RowDot, EveryWidth) {
  expectDots(&RowKernels::dot);
  expectDots(&RowKernels::dotBf16);
  expectDots(&RowKernels::dotF16);
}

TEST(RowSoftmaxGrad, EveryWidth) {
  const std::vector<float> p = between(0, 1, kMaxWidth), g = between(-2, 3, kMaxWidth);
  for (const RowKernels* kernels : rowKernelSets())
    for (int64_t n = 0; n <= kMaxWidth; ++n) {
      std::vector<float> result = g;
      kernels->softmaxGrad(p.data(), n, 0.75F, 0.125F, result.data());
      for (size_t i = 0; i < g.size(); ++i) {
        const bool inside = static_cast<int64_t>(i) < n;
        EXPECT_FLOAT_EQ(result[i], inside ? p[i] * (g[i] - 0.75F) * 0.125F : g[i]);
      }
    }
}

TEST(RowMax, EveryWidth) {
  for (const RowKernels* kernels : rowKernelSets()) {
    EXPECT_EQ(kernels->max(nullptr, 0), -std::numeric_limits<float>::infinity());
    const std::vector<float> x = between(-3, 2, kMaxWidth);
    for (int64_t n = 1; n <= kMaxWidth; ++n)
      EXPECT_EQ(kernels->max(x.data(), n), *std::max_element(x.begin(), x.begin() + n));
  }
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

// Ties, neighbours of ties, numbers below the normal ones, infinities and NaNs among them.
std::vector<float> hardToRound() {
  std::vector<float> x;
  for (uint32_t high : {0x0000u, 0x0001u, 0x007Fu, 0x3F80u, 0x3F81u, 0x7F7Fu, 0x7F80u, 0x7FFFu})
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      for (uint32_t sign : {0u, 0x80000000u})
        x.push_back(std::bit_cast<float>(sign | high << 16 | low));
  for (int i = -30; i < 47; ++i) x.push_back(std::ldexp(1.0F + static_cast<float>(i) / 128, i));
  return x;
}

// Rows of every width are converted as their elements are, by every instruction set.
template <typename T>
void expectRowsAsElements(void (*RowKernels::*narrowRow)(const float*, int64_t, T*),
                          void (*RowKernels::*widenRow)(const T*, int64_t, float*)) {
  const std::vector<float> wide = hardToRound();
  for (const RowKernels* kernels : rowKernelSets())
    for (int64_t n = 0; n <= std::ssize(wide); ++n) {
      std::vector<T> halves(wide.size(), T{0x1234});
      std::vector<float> back(wide.size(), -1);
      (kernels->*narrowRow)(wide.data(), n, halves.data());
      (kernels->*widenRow)(halves.data(), n, back.data());
      for (size_t i = 0; i < wide.size(); ++i) {
        const bool inside = static_cast<int64_t>(i) < n;
        ASSERT_EQ(halves[i].bits, inside ? narrow<T>(wide[i]).bits : 0x1234) << wide[i];
        ASSERT_EQ(std::bit_cast<uint32_t>(back[i]),
                  std::bit_cast<uint32_t>(inside ? toFloat(halves[i]) : -1.0F))
            << wide[i];
      }
    }
}

TEST(Bf16, RowsAreConvertedAsElements) {
  expectRowsAsElements(&RowKernels::narrow, &RowKernels::widen);
}

TEST(F16, RowsAreConvertedAsElements) {
  expectRowsAsElements(&RowKernels::narrowF16, &RowKernels::widenF16);
}

TEST(Bf16, BlocksOfRowsAreConvertedRowByRow) {
  const std::vector<float> wide = hardToRound();
  const int64_t rows = 2, ldx = 80, ldy = 90;
  for (const RowKernels* kernels : rowKernelSets())
    for (int64_t n : {1, 32, 80}) {
      std::vector<Bf16> halves(static_cast<size_t>(rows * ldy), Bf16{0x1234});
      std::vector<Bf16> past = halves;
      kernels->narrowRows(wide.data(), ldx, rows, n, halves.data(), ldy);
      kernels->narrowRowsPastCaches(wide.data(), ldx, rows, n, past.data(), ldy);
      for (int64_t i = 0; i < rows * ldy; ++i) {
        const size_t from = static_cast<size_t>(i / ldy * ldx + i % ldy);
        const auto expected = i % ldy < n ? toBf16(wide[from]).bits : 0x1234;
        ASSERT_EQ(halves[static_cast<size_t>(i)].bits, expected);
        ASSERT_EQ(past[static_cast<size_t>(i)].bits, expected);
      }
    }
}

}  // namespace
}  // namespace trireme::runtime
