#include "ir/base/units.h"

#include <gtest/gtest.h>

#include <concepts>

#include "ir/base/dtype.h"

namespace trireme {
namespace {
using namespace trireme::literals;

template <typename A, typename B>
concept Addable = requires(A a, B b) { a + b; };
template <typename A, typename B>
concept Divisible = requires(A a, B b) { a / b; };

TEST(Quantity, BytesOverBandwidthIsTime) {
  // 1 GB at 100 GB/s = 10 ms.
  const Seconds time = 1_GB / 100_GBps;
  EXPECT_DOUBLE_EQ(time.count(), 0.01);
}

TEST(Quantity, WorkOverRateIsTime) {
  EXPECT_DOUBLE_EQ((Flops(624e12) / FlopsPerSecond(312e12)).count(), 2.0);
}

TEST(Quantity, BandwidthTimesTimeIsBytes) {
  EXPECT_DOUBLE_EQ((100_GBps * 10_ms).count(), 1e9);
  EXPECT_EQ(1_GB / 1_s, 1_GBps);
}

TEST(Quantity, DifferentUnitsDoNotMix) {
  static_assert(Addable<Bytes, Bytes>);
  static_assert(!Addable<Bytes, Seconds>);
  static_assert(!Addable<Bytes, double>);
  static_assert(!Divisible<Bytes, FlopsPerSecond>);
  static_assert(!std::convertible_to<double, Bytes>);
  static_assert(!std::convertible_to<Bytes, double>);
  static_assert(std::same_as<decltype(1_B / 1_B), double>);
}

TEST(Quantity, GibibytesAreNotGigabytes) {
  EXPECT_EQ((1_GiB).count(), 1073741824.0);
  EXPECT_EQ((1_GB).count(), 1e9);
  EXPECT_GT(1_GiB, 1_GB);
}

TEST(Quantity, ScalesFromBothSides) {
  EXPECT_EQ(2.0 * 3_MB, 3_MB * 2.0);
  EXPECT_EQ(6_MB / 2.0, 3_MB);
  Bytes sum = 1_MB;
  sum += 2_MB;
  sum -= 1_MB;
  sum *= 4.0;
  EXPECT_EQ(sum, 8_MB);
}

TEST(DType, NamesRoundTrip) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16, DType::kI32})
    EXPECT_EQ(parseDType(dtypeName(type)), type);
}

TEST(DType, UnknownNameIsNothing) {
  EXPECT_EQ(parseDType("fp32"), std::nullopt);
  EXPECT_EQ(parseDType(""), std::nullopt);
}

TEST(DType, SizesFollowTheNames) {
  EXPECT_EQ(byteSize(DType::kF64), 8);
  EXPECT_EQ(byteSize(DType::kF32), 4);
  EXPECT_EQ(byteSize(DType::kBf16), 2);
  EXPECT_EQ(byteSize(DType::kF16), 2);
  EXPECT_EQ(byteSize(DType::kI32), 4);
}

}  // namespace
}  // namespace trireme
