// Linear programs that grow row by row, solved by CLP (COIN-OR). Internal to planner/.
#pragma once
#include <memory>
#include <utility>
#include <vector>

namespace trireme::planner {

// min sum c_i x_i with x_i >= the column's least and rows sum a_i x_i >= least. Solutions are as
// exact as a simplex in double precision makes them: whoever needs a proof takes the prices, and
// does the sums anew.
class LinearProgram {
 public:
  using Entries = std::vector<std::pair<int, double>>;  // column, a_i

  LinearProgram();
  ~LinearProgram();
  LinearProgram(LinearProgram&&) noexcept;

  int addColumn(double least);
  int addRow(const Entries& entries, double least);
  void setCosts(const std::vector<double>& costs);  // of all columns

  // From the last solution on. False: CLP found none.
  bool solve();
  // After solve(): of columns; and what a row costs, per unit of its `least`, never less than 0.
  std::vector<double> values() const;
  std::vector<double> prices() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace trireme::planner
