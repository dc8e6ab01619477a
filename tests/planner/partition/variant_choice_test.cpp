#include "planner/partition/variant_choice.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace trireme::planner {
namespace {

using Items = std::vector<std::vector<Option>>;

// The cheapest choice that fits, by trying them all; infinity if none does.
double bruteForce(const Items& items, double capacity, size_t i = 0, double cost = 0,
                  double size = 0) {
  if (i == items.size()) return size <= capacity ? cost : std::numeric_limits<double>::infinity();
  double best = std::numeric_limits<double>::infinity();
  for (const Option& option : items[i])
    best =
        std::min(best, bruteForce(items, capacity, i + 1, cost + option.cost, size + option.size));
  return best;
}

void expectAnswers(const VariantChoice& choice, const Items& items, double capacity) {
  double cost = 0, size = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Option& option = items[i][static_cast<size_t>(choice.picks()[i])];
    cost += option.cost;
    size += option.size;
  }
  EXPECT_NEAR(cost, choice.upper(), 1e-9);
  EXPECT_LE(size, capacity);
}

// Fast and large, or slow and small: with room for one large one, the one that gains most is fast.
TEST(VariantChoice, RoomGoesWhereItGainsMost) {
  const Items items = {{{1, 10}, {3, 2}}, {{1, 10}, {9, 2}}};
  VariantChoice choice(items, 12);
  ASSERT_TRUE(choice.feasible());
  ASSERT_TRUE(choice.solve().ok());
  EXPECT_EQ(choice.upper(), 3 + 1);
  EXPECT_EQ(choice.picks(), (std::vector<int32_t>{1, 0}));
  EXPECT_FALSE(VariantChoice(items, 3).feasible());
  EXPECT_EQ(VariantChoice(items, 20).upper(), 2);
}

// Gains of 6 per 5, 5 per 4 and 5 per 4, room for 8: the relaxation takes both of 4.
// With room for 9 it also takes four fifths of the 6: a bound of 16 - 10 - 6 / 5; the rounding
// leaves it out. Room for 5 + 4 is 11 gained, 4 + 4 only 10: the answer is 16 - 11.
TEST(VariantChoice, ExactAnswerBeatsTheRounding) {
  const Items items = {{{6, 0}, {0, 5}}, {{5, 0}, {0, 4}}, {{5, 0}, {0, 4}}};
  VariantChoice choice(items, 9);
  EXPECT_NEAR(choice.lower(), 16 - 10 - 6.0 / 5, 1e-9);
  EXPECT_EQ(choice.upper(), 6);
  ASSERT_TRUE(choice.solve().ok());
  EXPECT_EQ(choice.upper(), 5);
  EXPECT_EQ(choice.lower(), 5);
}

TEST(VariantChoice, AgreesWithBruteForce) {
  std::mt19937_64 rng(11);
  int feasible = 0, closed = 0;
  for (int round = 0; round < 3000; ++round) {
    const int64_t largest = round % 3 == 0 ? 4 : 1000;  // Ties, or few of them.
    Items items(1 + rng() % 7);
    for (std::vector<Option>& item : items) {
      item.resize(1 + rng() % 3);
      for (Option& option : item)
        option = {static_cast<double>(rng() % largest), static_cast<double>(rng() % largest)};
    }
    const auto capacity = static_cast<double>(rng() % (largest * items.size()));
    const double best = bruteForce(items, capacity);
    VariantChoice choice(items, capacity);
    ASSERT_EQ(choice.feasible(), best < std::numeric_limits<double>::infinity());
    if (!choice.feasible()) continue;
    ++feasible;
    EXPECT_LE(choice.lower(), best + 1e-9);
    EXPECT_GE(choice.upper(), best - 1e-9);
    expectAnswers(choice, items, capacity);
    closed += choice.upper() > best + 1e-9 ? 1 : 0;
    ASSERT_TRUE(choice.solve().ok());
    EXPECT_NEAR(choice.upper(), best, 1e-9);
    EXPECT_EQ(choice.lower(), choice.upper());
    expectAnswers(choice, items, capacity);
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(closed, 20);  // where the rounding was not the answer
}

// 60 alike items: 61 sizes, although there are 2^60 choices.
TEST(VariantChoice, ManyItemsOfOneSizeAreEasy) {
  std::mt19937_64 rng(3);
  Items items(60);
  for (std::vector<Option>& item : items)
    item = {{1000.0 + static_cast<double>(rng() % 100), 0}, {0, 7}};
  VariantChoice choice(items, 30 * 7 + 3);
  ASSERT_TRUE(choice.solve().ok());
  int small = 0;
  for (const int32_t pick : choice.picks()) small += pick == 0 ? 1 : 0;
  EXPECT_EQ(small, 30);
}

}  // namespace
}  // namespace trireme::planner
