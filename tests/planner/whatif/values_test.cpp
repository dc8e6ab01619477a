#include "planner/whatif/values.h"

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

using Whole = std::vector<int64_t>;
using Reals = std::vector<double>;

TEST(WhatifValues, WholeNumbersAreValuesListsAndRanges) {
  EXPECT_EQ(parseWhole("64", 1), (Whole{64}));
  EXPECT_EQ(parseWhole("64, 96,64", 1), (Whole{64, 96}));
  EXPECT_EQ(parseWhole("64..512", 1), (Whole{64, 128, 256, 512}));
  EXPECT_EQ(parseWhole("100..500", 1), (Whole{100, 200, 400, 500}));
  EXPECT_EQ(parseWhole("64..256:64", 1), (Whole{64, 128, 192, 256}));
  EXPECT_EQ(parseWhole("64..250:64", 1), (Whole{64, 128, 192}));
  EXPECT_EQ(parseWhole("1..4000000:2000000", 1), (Whole{1, 2000001}));
  EXPECT_EQ(parseWhole("8,64..128", 1), (Whole{8, 64, 128}));
  EXPECT_EQ(parseWhole("64..64", 1), (Whole{64}));
  EXPECT_EQ(parseWhole("0..3", 0, true), (Whole{0, 1, 2, 3}));
  EXPECT_EQ(parseWhole("4611686018427387904..9223372036854775807", 1),
            (Whole{4611686018427387904, 9223372036854775807}));
}

// 200 Gbit/s are 25e9 B/s.
TEST(WhatifValues, UnitsMayStandOnceAndRangesMayBeOfFractions) {
  EXPECT_EQ(parseUnits("200..800 Gbit/s", rateUnits()), (Reals{25e9, 50e9, 100e9}));
  EXPECT_EQ(parseUnits("200..400:100 Gbit/s", rateUnits()), (Reals{25e9, 37.5e9, 50e9}));
  EXPECT_EQ(parseUnits("200..400 Gbit/s:100", rateUnits()), (Reals{25e9, 37.5e9, 50e9}));
  EXPECT_EQ(parseUnits("200 Gbit/s..0.1 TB/s", rateUnits()), (Reals{25e9, 50e9, 100e9}));
  EXPECT_EQ(parseUnits("200,400 Gbit/s,1 GB/s", rateUnits())->back(), 1e9);
  EXPECT_EQ(parseUnits("1e3..2e3 MB/s", rateUnits()), (Reals{1e9, 2e9}));
  EXPECT_EQ(parseUnits("0..0.3:0.1 USD/h", priceUnits())->size(), 4u);
  EXPECT_EQ(parseUnit("15T", tokenUnits()), 15e12);
  EXPECT_EQ(parseUnit("300 B", tokenUnits()), 300e9);
  EXPECT_EQ(parseUnit("1 y", durationUnits()), 365 * 86400.0);
  EXPECT_FALSE(parseUnits("0..8 USD/h", priceUnits()).has_value());
}

TEST(WhatifValues, ARangeIsToldFromAList) {
  bool isRange = true;
  EXPECT_EQ(parseUnits("1,2,4 USD/h", priceUnits(), &isRange), (Reals{1, 2, 4}));
  EXPECT_FALSE(isRange);
  EXPECT_EQ(parseUnits("1..4 USD/h", priceUnits(), &isRange), (Reals{1, 2, 4}));
  EXPECT_TRUE(isRange);
}

TEST(WhatifValues, ATokenIsTheLeast) {
  EXPECT_EQ(parseUnit("1", tokenUnits()), 1.0);
  EXPECT_EQ(parseUnit("1e-9", tokenUnits()).error().message(), "must be at least 1, got '1e-9'");
  EXPECT_EQ(parseUnit("0 USD", moneyUnits()).error().message(), "must be above 0, got '0 USD'");
  EXPECT_EQ(parseUnit("0 USD/h", priceUnits()), 0.0);
}

TEST(WhatifValues, ANameIsThereOnce) {
  EXPECT_EQ(parseNames("h100,h200"), (std::vector<std::string>{"h100", "h200"}));
  EXPECT_EQ(parseNames("h100,h200,h100").error().message(), "'h100' is there twice: name it once");
}

// Two devices may have the same price.
TEST(WhatifValues, NumbersWithUnitsAreAsTheyAreWritten) {
  EXPECT_EQ(parseUnits("2,2,5 USD/h", priceUnits()), (Reals{2, 2, 5}));
  EXPECT_EQ(withoutRepeats(Reals{2, 5, 2, 5}), (Reals{2, 5}));
  EXPECT_EQ(parseUnit("0 min", pauseUnits()), 0.0);
  EXPECT_FALSE(parseUnit("0 min", durationUnits()).has_value());
}

// 1000 beside 15k is a thousand or a million; in the range 10..15T nobody means ten tokens.
TEST(WhatifValues, ANumberThatMayBeBareNeedsAUnitBesideOthers) {
  EXPECT_EQ(parseUnits("1000,15000", tokenUnits()), (Reals{1000, 15000}));
  EXPECT_EQ(parseUnits("1k,15k", tokenUnits()), (Reals{1000, 15000}));
  EXPECT_EQ(parseUnits("10..40T", tokenUnits()), (Reals{10e12, 20e12, 40e12}));
  for (const char* text : {"1000,15k", "15k,1000"})
    EXPECT_EQ(parseUnits(text, tokenUnits()).error().message(),
              "'1000' beside numbers with a unit: write '1000k' or '1k'");
  // What is suggested is accepted, and the same number: 1e12T would be more than anyone has.
  EXPECT_EQ(parseUnits("1T,1e12", tokenUnits()).error().message(),
            "'1e12' beside numbers with a unit: write '1T'");
  EXPECT_EQ(parseUnits("1234567,1P", tokenUnits()).error().message(),
            "'1234567' beside numbers with a unit: write '1.234567M'");
}

}  // namespace
}  // namespace trireme::planner
