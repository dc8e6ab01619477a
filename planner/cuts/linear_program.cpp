#include "planner/cuts/linear_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "ir/base/status.h"

namespace trireme::planner {
namespace {

constexpr size_t kLanes = 4;
constexpr size_t kNone = static_cast<size_t>(-1);
// What counts as 0: of variables, and of the factor that a pivot divides by.
constexpr double kZero = 1e-9, kLeastPivot = 1e-9;
// How wrong a row may have become by pivots.
constexpr double kBlurred = 1e-7;
// Columns that cost the same are told apart by about so much: among equals pivots gain nothing, and
// may go round in circles.
constexpr double kApart = 1e-8;
// Pivots per variable, after which it is given up.
constexpr size_t kMost = 20;

double costOf(double cost, size_t column) {
  const double spread = static_cast<double>(column) * std::numbers::phi;
  return cost + kApart * (1 + spread - std::floor(spread));
}

// to += factor x from, of whole lanes.
void addTimes(double* __restrict to, double factor, const double* __restrict from, size_t count) {
  for (size_t i = 0; i < count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) to[i + lane] += factor * from[i + lane];
}

}  // namespace

int LinearProgram::addColumn(double least) {
  TRIREME_CHECK(rows_.empty());
  least_.push_back(least);
  return static_cast<int>(numColumns()) - 1;
}

// A value and the factors, up to whole lanes.
size_t LinearProgram::width() const { return (1 + numColumns() + kLanes - 1) / kLanes * kLanes; }

void LinearProgram::addRow(const Entries& entries, double least) {
  rows_.push_back({entries, least});
  if (!costs_.empty()) append(rows_.size() - 1);
}

void LinearProgram::setCosts(std::vector<double> costs) {
  costs_ = std::move(costs);
  restart();
}

// All columns at their least.
void LinearProgram::restart() {
  nonbasic_.resize(numColumns());
  std::iota(nonbasic_.begin(), nonbasic_.end(), size_t{0});
  places_.clear();
  for (size_t j = 0; j < numColumns(); ++j) places_.push_back({false, j});
  basic_.clear();
  dictionary_.clear();
  reduced_.assign(1, 0.0);
  for (size_t j = 0; j < numColumns(); ++j) {
    reduced_.push_back(costOf(costs_[j], j));
    reduced_[0] += reduced_.back() * least_[j];
  }
  reduced_.resize(width(), 0.0);
  for (size_t i = 0; i < rows_.size(); ++i) append(i);
}

// A row's variable is how much its sum is above its least.
void LinearProgram::append(size_t row) {
  places_.push_back({true, basic_.size()});
  basic_.push_back(numColumns() + row);
  dictionary_.resize(basic_.size() * width(), 0.0);
  double* line = rowAt(basic_.size() - 1);
  line[0] = -rows_[row].least;
  for (const auto& [column, element] : rows_[row].entries) {
    const auto j = static_cast<size_t>(column);
    line[0] += element * least_[j];
    const Place place = places_[j];
    if (place.isBasic)
      addTimes(line, element, rowAt(place.at), width());
    else
      line[1 + place.at] += element;
  }
}

// The basic variable that is furthest below 0.
size_t LinearProgram::leaving() const {
  size_t found = kNone;
  double least = -kZero;
  for (size_t r = 0; r < basic_.size(); ++r) {
    const double value = rowAt(r)[0];
    if (value >= least) continue;
    found = r;
    least = value;
  }
  return found;
}

// The nonbasic variable that raises the r-th basic one at the least cost.
size_t LinearProgram::entering(size_t r) const {
  const double* factors = rowAt(r) + 1;
  size_t found = kNone;
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < numColumns(); ++k) {
    if (factors[k] <= kLeastPivot) continue;
    const double cost = std::max(reduced_[1 + k], 0.0) / factors[k];
    if (cost >= least) continue;
    found = k;
    least = cost;
  }
  return found;
}

// The r-th basic and the k-th nonbasic variable change places.
void LinearProgram::pivot(size_t r, size_t k) {
  double* line = rowAt(r);
  const double by = 1 / line[1 + k];
  for (size_t i = 0; i < width(); ++i) line[i] *= -by;
  line[1 + k] = by;
  const auto substitute = [&](double* other) {
    const double factor = other[1 + k];
    if (factor == 0) return;
    other[1 + k] = 0;
    addTimes(other, factor, line, width());
  };
  for (size_t i = 0; i < basic_.size(); ++i)
    if (i != r) substitute(rowAt(i));
  substitute(reduced_.data());
  numProducts_ += static_cast<int64_t>(dictionary_.size());
  std::swap(basic_[r], nonbasic_[k]);
  places_[basic_[r]] = {true, r};
  places_[nonbasic_[k]] = {false, k};
}

// Until no basic variable is below 0.
bool LinearProgram::improve() {
  for (size_t pivots = kMost * places_.size(); pivots > 0; --pivots) {
    const size_t r = leaving();
    if (r == kNone) return true;
    const size_t k = entering(r);
    if (k == kNone) return false;
    pivot(r, k);
  }
  return false;
}

// Whether rows come to what the dictionary says.
bool LinearProgram::isExact() const {
  const std::vector<double> columns = values();
  for (size_t i = 0; i < rows_.size(); ++i) {
    double sum = -rows_[i].least;
    for (const auto& [column, element] : rows_[i].entries)
      sum += element * columns[static_cast<size_t>(column)];
    if (!(std::abs(sum - valueOf(numColumns() + i)) <= kBlurred)) return false;
  }
  return true;
}

bool LinearProgram::solve() {
  if (improve() && isExact()) return true;
  restart();
  return improve() && isExact();
}

double LinearProgram::valueOf(size_t variable) const {
  const Place place = places_[variable];
  return place.isBasic ? rowAt(place.at)[0] : 0;
}

std::vector<double> LinearProgram::values() const {
  std::vector<double> values;
  for (size_t j = 0; j < numColumns(); ++j) values.push_back(least_[j] + valueOf(j));
  return values;
}

std::vector<double> LinearProgram::prices() const {
  std::vector<double> prices;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Place place = places_[numColumns() + i];
    prices.push_back(place.isBasic ? 0 : std::max(reduced_[1 + place.at], 0.0));
  }
  return prices;
}

}  // namespace trireme::planner
