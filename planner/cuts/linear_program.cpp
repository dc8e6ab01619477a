#include "planner/cuts/linear_program.h"

#include <coin/Clp_C_Interface.h>

#include <algorithm>
#include <limits>

namespace trireme::planner {

struct LinearProgram::Model {
  Clp_Simplex* clp = Clp_newModel();
  int numColumns = 0, numRows = 0;

  Model() {
    Clp_setLogLevel(clp, 0);
    // Programs here are small and count in units of their own: both took a quarter of the time.
    Clp_scaling(clp, 0);
    Clp_setPerturbation(clp, 100);
  }
  ~Model() { Clp_deleteModel(clp); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
};

LinearProgram::LinearProgram() : model_(std::make_unique<Model>()) {}
LinearProgram::~LinearProgram() = default;
LinearProgram::LinearProgram(LinearProgram&&) noexcept = default;

int LinearProgram::addColumn(double least) {
  const double most = std::numeric_limits<double>::max(), cost = 0;
  const CoinBigIndex starts[] = {0, 0};
  Clp_addColumns(model_->clp, 1, &least, &most, &cost, starts, nullptr, nullptr);
  return model_->numColumns++;
}

int LinearProgram::addRow(const Entries& entries, double least) {
  std::vector<int> columns;
  std::vector<double> elements;
  for (const auto& [column, element] : entries) {
    columns.push_back(column);
    elements.push_back(element);
  }
  const double most = std::numeric_limits<double>::max();
  const CoinBigIndex starts[] = {0, static_cast<CoinBigIndex>(entries.size())};
  Clp_addRows(model_->clp, 1, &least, &most, starts, columns.data(), elements.data());
  return model_->numRows++;
}

void LinearProgram::setCosts(const std::vector<double>& costs) {
  Clp_chgObjCoefficients(model_->clp, costs.data());
}

bool LinearProgram::solve() {
  Clp_dual(model_->clp, 0);
  return Clp_status(model_->clp) == 0;
}

std::vector<double> LinearProgram::values() const {
  const double* values = Clp_primalColumnSolution(model_->clp);
  return {values, values + model_->numColumns};
}

std::vector<double> LinearProgram::prices() const {
  const double* duals = Clp_dualRowSolution(model_->clp);
  std::vector<double> prices(duals, duals + model_->numRows);
  for (double& price : prices) price = std::max(price, 0.0);
  return prices;
}

}  // namespace trireme::planner
