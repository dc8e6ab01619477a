// A sweep with its answers, and what it would cost: what tables and files are made of.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/whatif/economics.h"
#include "planner/whatif/sweep.h"

namespace trireme::planner {

// Values to combine; each empty list is one absent value.
struct ScenarioAxes {
  std::vector<double> tokens;
  std::vector<double> price;                                // USD per device and hour
  std::vector<double> power;                                // W of a device
  std::vector<double> mtbf;                                 // s, of a device
  bool pricePerHardware = false, powerPerHardware = false;  // one value each, not combinations
  double checkpointBandwidth = 0, restart = 0;              // with mtbf
  std::optional<double> repair;
  std::optional<int64_t> spares;
  std::vector<double> deadlines, budgets;  // s, USD
};

struct Answers {
  Sweep sweep;
  std::vector<SweepPoint> points;
  std::vector<std::optional<PointAnswer>> answers;  // of each point
  ScenarioAxes scenarios;
};

// "A", "B", ... "Z", "AA": short names of plans in the order in which they win.
std::string letterOf(size_t index);

// A point under one scenario.
struct AnswerRow {
  size_t point = 0;
  Scenario scenario;
  std::optional<Economics> economics;  // absent: no plan, or no tokens
};

// Of one point, all scenarios.
std::vector<AnswerRow> rowsOf(const Answers& answers, size_t point);
// Of all points that are answered.
std::vector<AnswerRow> rowsOf(const Answers& answers);

}  // namespace trireme::planner
