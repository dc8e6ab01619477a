#include "cost_models/backlog.h"

#include <gtest/gtest.h>

namespace trireme::cost {
namespace {

using namespace literals;

Backlog layer(Seconds backward, Seconds reduction) {
  Backlog change;
  change.compute(backward);
  change.reduce(reduction);
  return change;
}

TEST(Backlog, ComputingCatchesUpWithTheReductionsAndReducingFallsBehind) {
  Backlog change;
  EXPECT_EQ(change.after(3_s), 3_s);
  change.compute(5_s);
  EXPECT_EQ(change.after(7_s), 2_s);
  EXPECT_EQ(change.after(3_s), 0_s);
  change.reduce(4_s);
  EXPECT_EQ(change.after(7_s), 6_s);
  EXPECT_EQ(change.after(3_s), 4_s);
}

// Four layers, the stream 2 s behind before them. Reductions end at
//   b 1, r 3: 2 (before), then 5, 8, 11, 14 beside 4 s of backward: 10 behind = 2 + 4 x 3 - 4 x 1
//   b 4, r 3: 2, then 7, 11, 15, 19 beside 16 s: the last one, 3
//   b 3, r 3: 2, then 6, 9, 12, 15 beside 12 s: 3
// and, 20 s behind, at 23, 26, 29, 32, of which b 4 leaves 16.
TEST(Backlog, OfLayersIsTheFormula) {
  EXPECT_EQ(layer(1_s, 3_s).repeated(4).after(2_s), 10_s);
  EXPECT_EQ(layer(4_s, 3_s).repeated(4).after(2_s), 3_s);
  EXPECT_EQ(layer(3_s, 3_s).repeated(4).after(2_s), 3_s);
  EXPECT_EQ(layer(4_s, 3_s).repeated(4).after(20_s), 16_s);
  EXPECT_EQ(layer(1_s, 3_s).repeated(4).after(0_s), 9_s);  // 12 - 3: nothing runs beside the first
}

TEST(Backlog, RepeatedIsOneAfterTheOther) {
  for (const Backlog& once : {layer(1_s, 3_s), layer(4_s, 3_s), layer(3_s, 3_s)})
    for (int n = 1; n < 6; ++n)
      for (const Seconds before : {0_s, 1_s, 4_s, 30_s}) {
        Seconds behind = before;
        Backlog all;
        for (int i = 0; i < n; ++i) {
          behind = once.after(behind);
          all.follow(once);
        }
        EXPECT_EQ(once.repeated(n).after(before), behind) << n;
        EXPECT_EQ(all.after(before), behind) << n;
      }
}

}  // namespace
}  // namespace trireme::cost
