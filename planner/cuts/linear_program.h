// Linear programs of some hundred columns and rows that grow row by row. Internal to planner/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::planner {

// min sum c_j x_j with x_j >= the column's least, c_j >= 0, and rows sum_j a_j x_j >= least.
//
// Dual simplex on a dictionary (Chvatal, Linear Programming, 1983, chapter 10): every basic
// variable, and the costs, as
//   basic_r = value_r + sum_k factor_rk nonbasic_k
// of variables that are 0: what columns have above their least, and rows. Nonbasic variables never
// cost less than nothing, so that a new row takes only the few pivots that mend it, each
// rows x columns products: solvers of sparse programs factor such small and dense ones anew for
// every row, which took thirty times as long. Numbers that pivots have blurred are made again from
// the rows. Costs are told apart by a hundred-millionth, and solutions are as exact as double
// precision makes them: whoever needs a proof takes the prices, and does the sums anew.
class LinearProgram {
 public:
  using Entries = std::vector<std::pair<int, double>>;  // column, a_j

  int addColumn(double least);  // all of them before the first row
  void addRow(const Entries& entries, double least);
  void setCosts(std::vector<double> costs);  // of all columns; the next solution starts anew

  // From the last solution on. False: there is none, or none was found.
  bool solve();
  // After solve(): of columns; and what a row costs, per unit of its `least`, never less than 0.
  std::vector<double> values() const;
  std::vector<double> prices() const;

  // So far, of all pivots.
  int64_t numProducts() const { return numProducts_; }

 private:
  struct Row {
    Entries entries;
    double least = 0;
  };
  // Variables: column j is j, row i is numColumns + i. Where they are: row of the dictionary if
  // basic, column if not.
  struct Place {
    bool isBasic = false;
    size_t at = 0;
  };

  size_t numColumns() const { return least_.size(); }
  size_t width() const;  // of the dictionary's rows
  double* rowAt(size_t r) { return dictionary_.data() + r * width(); }
  const double* rowAt(size_t r) const { return dictionary_.data() + r * width(); }
  double valueOf(size_t variable) const;
  void restart();
  void append(size_t row);
  size_t leaving() const;
  size_t entering(size_t r) const;
  void pivot(size_t r, size_t k);
  bool improve();
  bool isExact() const;

  std::vector<double> least_, costs_;
  std::vector<Row> rows_;
  std::vector<double> dictionary_;  // of as many rows as basic_
  std::vector<double> reduced_;     // the costs' row
  std::vector<size_t> basic_, nonbasic_;
  std::vector<Place> places_;
  int64_t numProducts_ = 0;
};

}  // namespace trireme::planner
