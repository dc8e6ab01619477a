#include "planner/cuts/linear_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace trireme::planner {
namespace {

constexpr double kApart = 1e-7;  // more than what tells costs apart

// min 2 x + 3 y with x + y >= 4, x - y >= -2, x >= 1, y >= 0. At x = 4, y = 0: the first row costs
// 2 per unit, the second nothing. With x + 2 y >= 7 as well, once the first and once the third row
// are 2 x + 3 y >= 11, which x = 1, y = 3 reaches. Other prices may say the same: with what x >= 1
// costs, 2 - p - q - r, rows add up to 11.
TEST(LinearProgram, GrowsByRowsAndSaysWhatTheyCost) {
  LinearProgram program;
  const int x = program.addColumn(1), y = program.addColumn(0);
  program.addRow({{x, 1}, {y, 1}}, 4);
  program.addRow({{x, 1}, {y, -1}}, -2);
  program.setCosts({2, 3});
  ASSERT_TRUE(program.solve());
  EXPECT_NEAR(program.values()[0], 4, 1e-9);
  EXPECT_NEAR(program.prices()[0], 2, kApart);
  EXPECT_NEAR(program.prices()[1], 0, kApart);
  program.addRow({{x, 1}, {y, 2}}, 7);
  ASSERT_TRUE(program.solve());
  EXPECT_NEAR(program.values()[0], 1, 1e-9);
  EXPECT_NEAR(program.values()[1], 3, 1e-9);
  const std::vector<double> p = program.prices();
  EXPECT_NEAR(4 * p[0] - 2 * p[1] + 7 * p[2] + (2 - p[0] - p[1] - p[2]), 11, 10 * kApart);
  EXPECT_NEAR(p[0] - p[1] + 2 * p[2], 3, kApart);
}

TEST(LinearProgram, WithoutASolutionSaysSo) {
  LinearProgram program;
  const int x = program.addColumn(1);
  program.addRow({{x, -1}}, 0);
  program.setCosts({1});
  EXPECT_FALSE(program.solve());
}

// Values within all rows, and prices that say of every column no more than it costs, are the best
// there are if both come to the same: sum c x = sum p least + sum (c - sum p a) x_least. Rows come
// one by one, as chains of tasks do; whole numbers and costs of 0 have many solutions that cost the
// same.
TEST(LinearProgram, SolutionsOfRandomProgramsProveThemselves) {
  std::mt19937 random(1);
  const auto number = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  const auto count = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int solved = 0;
  for (int round = 0; round < 300; ++round) {
    const int columns = count(1, 40);
    const bool isWhole = count(0, 1) == 0;
    LinearProgram program;
    std::vector<double> least, costs;
    for (int j = 0; j < columns; ++j) {
      least.push_back(isWhole ? count(0, 2) : number(-1, 2));
      costs.push_back(count(0, 2) == 0 ? number(0, 3) : 0);
      program.addColumn(least.back());
    }
    program.setCosts(costs);
    struct Row {
      std::vector<double> factors;
      double least;
    };
    std::vector<Row> rows;
    for (int i = 0; i < 2 * columns; ++i) {
      Row row{std::vector<double>(least.size()), 0};
      LinearProgram::Entries entries;
      for (int j = 0; j < columns; ++j) {
        if (count(0, 2) == 0) continue;
        row.factors[static_cast<size_t>(j)] = isWhole ? count(-1, 3) : number(-1, 3);
        entries.emplace_back(j, row.factors[static_cast<size_t>(j)]);
      }
      // At x = 3 every row holds, so that there is a solution.
      for (const double factor : row.factors) row.least += 3 * factor;
      row.least -= number(0, 2);
      program.addRow(entries, row.least);
      rows.push_back(row);
      ASSERT_TRUE(program.solve());
      const std::vector<double> x = program.values(), prices = program.prices();
      ASSERT_EQ(x.size(), least.size());
      ASSERT_EQ(prices.size(), rows.size());
      std::vector<double> reduced = costs;
      double cost = 0, bound = 0, size = 1;
      for (size_t r = 0; r < rows.size(); ++r) {
        double sum = 0;
        for (size_t j = 0; j < x.size(); ++j) {
          sum += rows[r].factors[j] * x[j];
          reduced[j] -= prices[r] * rows[r].factors[j];
        }
        EXPECT_GE(sum, rows[r].least - 1e-6);
        EXPECT_GE(prices[r], 0);
        bound += prices[r] * rows[r].least;
      }
      for (size_t j = 0; j < x.size(); ++j) {
        EXPECT_GE(x[j], least[j] - 1e-6);
        EXPECT_GE(reduced[j], -kApart);
        size += std::abs(x[j]);
        cost += costs[j] * x[j];
        bound += reduced[j] * least[j];
      }
      EXPECT_NEAR(cost, bound, kApart * size);
      ++solved;
    }
  }
  EXPECT_GT(solved, 5000);
}

}  // namespace
}  // namespace trireme::planner
