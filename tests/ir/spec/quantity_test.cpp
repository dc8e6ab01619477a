#include "ir/spec/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ir/base/rng.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseBytes, DecimalAndBinaryPrefixesDiffer) {
  EXPECT_EQ(parseBytes("1 GB")->count(), 1e9);
  EXPECT_EQ(parseBytes("1 GiB")->count(), 1073741824.0);
  EXPECT_EQ(parseBytes("80 GiB")->count(), 80 * 1073741824.0);
  EXPECT_EQ(parseBytes("2 TB")->count(), 2e12);
  EXPECT_EQ(parseBytes("2 TiB")->count(), 2199023255552.0);
  EXPECT_EQ(parseBytes("3 KiB")->count(), 3072.0);
  EXPECT_EQ(parseBytes("3 kB")->count(), 3000.0);
  EXPECT_EQ(parseBytes("7 B")->count(), 7.0);
}

TEST(ParseBytesPerSecond, BitsAreAnEighthOfBytes) {
  EXPECT_EQ(parseBytesPerSecond("200 Gbit/s")->count(), 25e9);
  EXPECT_EQ(parseBytesPerSecond("8 bit/s")->count(), 1.0);
  EXPECT_EQ(parseBytesPerSecond("900 GB/s")->count(), 900e9);
  EXPECT_EQ(parseBytesPerSecond("3.35 TB/s")->count(), 3.35e12);
}

TEST(ParseSeconds, IsTheNearestDouble) {
  EXPECT_EQ(parseSeconds("5 us")->count(), 5e-6);
  EXPECT_EQ(parseSeconds("0.3 ms")->count(), 3e-4);
  EXPECT_EQ(parseSeconds("7 ns")->count(), 7e-9);
  EXPECT_EQ(parseSeconds("32.2 ps")->count(), 32.2e-12);
  EXPECT_EQ(parseSeconds("2 s")->count(), 2.0);
}

TEST(ParseFlopsPerSecond, KnowsTheUsualPrefixes) {
  EXPECT_EQ(parseFlopsPerSecond("312 TFLOP/s")->count(), 312e12);
  EXPECT_EQ(parseFlopsPerSecond("1.5 PFLOP/s")->count(), 1.5e15);
  EXPECT_EQ(parseFlopsPerSecond("40 GFLOP/s")->count(), 40e9);
}

TEST(ParseQuantity, SpaceIsOptionalAndExponentsAreNumbers) {
  EXPECT_EQ(parseBytes("80GiB").value(), parseBytes("80 GiB").value());
  EXPECT_EQ(parseBytes("1e3 B")->count(), 1000.0);
  EXPECT_EQ(parseBytes("1.5e+1 kB")->count(), 15000.0);
}

TEST(ParseQuantity, BareNumberIsRefusedWithTheListOfUnits) {
  EXPECT_THAT(
      messageOf(parseBytes("80")),
      HasSubstr(
          "a bare number has no unit; write it like '80 GiB'; units: B, kB, MB, GB, TB, KiB"));
  EXPECT_THAT(messageOf(parseSeconds("5")), HasSubstr("units: s, ms, us, ns, ps"));
}

TEST(ParseQuantity, OtherSpellingsAreRefused) {
  for (const char* text :
       {"80 gb", "80 Gb", "80 G", "80 GB/s", "80 GB ", "80 GiBs", "80 e", "80 e GB"})
    EXPECT_THAT(messageOf(parseBytes(text)), HasSubstr("unknown unit")) << text;
  EXPECT_THAT(messageOf(parseBytesPerSecond("200 Gbps")),
              HasSubstr("unknown unit; did you mean Gbit/s or GB/s?; write it like"));
  EXPECT_THAT(messageOf(parseBytesPerSecond("200 Gb/s")), HasSubstr("mean Gbit/s or GB/s?"));
  EXPECT_THAT(messageOf(parseBytesPerSecond("400 gbps")), HasSubstr("mean Gbit/s or GB/s?"));
  EXPECT_THAT(messageOf(parseBytesPerSecond("400 xbps")), Not(HasSubstr("did you mean")));
  EXPECT_THAT(messageOf(parseBytesPerSecond("200 GBit/s")),
              HasSubstr("unknown unit; did you mean Gbit/s?; write it like"));
  EXPECT_THAT(messageOf(parseBytes("80 GIB")), HasSubstr("did you mean GiB?"));
}

TEST(ParseQuantity, TextWithoutANumberIsRefused) {
  for (const char* text :
       {"", "GiB", " 80 GiB", "inf GB", "nan GB", ".5 GB", "5. GB", "+5 GB", "-"})
    EXPECT_THAT(messageOf(parseBytes(text)), HasSubstr("expected a number with a unit")) << text;
}

TEST(ParseQuantity, OverflowIsRefused) {
  EXPECT_THAT(messageOf(parseBytes("1e999 B")), HasSubstr("out of range"));
  EXPECT_THAT(messageOf(parseBytes("1e305 TB")), HasSubstr("out of range"));
}

TEST(ParseDecimal, TakesDecimalsOnly) {
  EXPECT_EQ(parseDecimal("1e-05").value(), 1e-5);
  EXPECT_EQ(parseDecimal("-0.5").value(), -0.5);
  for (const char* text : {"", "nan", "inf", "0x10", "1,5", "1 ", " 1", "1e", "--1", "1_000"})
    EXPECT_FALSE(parseDecimal(text).has_value()) << text;
}

TEST(PrintQuantity, ChoosesTheShortestText) {
  EXPECT_EQ(printQuantity(Bytes(80 * 1073741824.0)), "80 GiB");
  EXPECT_EQ(printQuantity(Bytes(1e9)), "1 GB");
  EXPECT_EQ(printQuantity(Bytes(7)), "7 B");
  EXPECT_EQ(printQuantity(BytesPerSecond(2039e9)), "2039 GB/s");
  EXPECT_EQ(printQuantity(BytesPerSecond(25e9)), "25 GB/s");  // and not 200 Gbit/s
  EXPECT_EQ(printQuantity(Seconds(5e-6)), "5 us");
  EXPECT_EQ(printQuantity(Seconds(0)), "0 s");
  EXPECT_EQ(printQuantity(FlopsPerSecond(989.4e12)), "989.4 TFLOP/s");
  EXPECT_EQ(printQuantity(Watts(700)), "700 W");
}

// Random bits are doubles of every size; those that no file can hold are left out.
TEST(PrintQuantity, ParsesToTheSameNumber) {
  const RngKey key = makeRngKey(11, 0, 0, RngStream::kDataShuffle);
  int tested = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t high = randomWord(key, 0, 2 * i);
    const uint64_t bits = high << 32 | randomWord(key, 0, 2 * i + 1);
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    ++tested;
    EXPECT_EQ(parseBytes(printQuantity(Bytes(value)))->count(), value);
    EXPECT_EQ(parseSeconds(printQuantity(Seconds(value)))->count(), value);
    EXPECT_EQ(parseBytesPerSecond(printQuantity(BytesPerSecond(value)))->count(), value);
  }
  EXPECT_GT(tested, 10000);
}

// The file's text is exact and may be long; this one is for the eye, in bytes, not in bits.
TEST(ReadableQuantity, HasAUnitThatCanBeRead) {
  EXPECT_EQ(readableQuantity(BytesPerSecond(156.25e6)), "156.25 MB/s");
  EXPECT_EQ(readableQuantity(BytesPerSecond(50e9)), "50 GB/s");
  EXPECT_EQ(readableQuantity(BytesPerSecond(3350e9)), "3350 GB/s");
  EXPECT_EQ(readableQuantity(BytesPerSecond(8e12)), "8 TB/s");
  EXPECT_EQ(readableQuantity(FlopsPerSecond(2250e12)), "2250 TFLOP/s");
  EXPECT_EQ(readableQuantity(FlopsPerSecond(1e14 / 3)), "33.3333 TFLOP/s");
  EXPECT_EQ(readableQuantity(Bytes(80 * 1073741824.0)), "80 GiB");
  EXPECT_EQ(readableQuantity(Bytes(178.35 * 1073741824.0)), "178.35 GiB");
  EXPECT_EQ(readableQuantity(Bytes(141e9)), "141 GB");
  EXPECT_EQ(readableQuantity(Seconds(2.5e-6)), "2.5 us");
  EXPECT_EQ(readableQuantity(Seconds(0)), "0 s");
  EXPECT_EQ(readableQuantity(Seconds(1e-15)), "1e-15 s");
  EXPECT_EQ(readableQuantity(Bytes(1e20)), "1e+20 B");
}

}  // namespace
}  // namespace trireme::spec
