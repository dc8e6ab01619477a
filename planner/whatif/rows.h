// A sweep with its answers, and what it would cost: what tables and files are made of.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/whatif/answers.h"
#include "planner/whatif/economics.h"
#include "planner/whatif/sweep.h"

namespace trireme::planner {

// Values to combine; each empty list is one absent value.
struct ScenarioAxes {
  std::vector<double> tokens;
  std::vector<double> price;                                // USD per device and hour
  std::vector<double> power;                                // W of a device
  std::vector<double> mtbf;                                 // s, of a device
  bool priceIsRange = false, powerIsRange = false;          // written as first..last
  bool pricePerHardware = false, powerPerHardware = false;  // one value each, not combinations
  double checkpointBandwidth = 0;                           // with mtbf
  std::optional<double> restart, repair;                    // s, with mtbf
  std::optional<int64_t> spares;
  std::vector<double> deadlines, budgets;  // s, USD
};

// A point under one scenario.
struct AnswerRow {
  size_t point = 0;
  Scenario scenario;
  std::optional<Economics> economics;  // absent: no plan, or no tokens
};

// What nobody chooses: a deadline or a budget has an answer under each, and the front compares rows
// under the same.
struct Condition {
  double tokens = 0;
  std::optional<double> price;  // of all hardware
  std::optional<double> mtbf;   // s, of a device
  int64_t minusNodes = 0;
  bool operator==(const Condition&) const = default;
};

// The answer to a deadline or a budget, also between the numbers of devices that were swept
// (refine.h).
struct Refinement {
  // Fewest devices in time, cheapest in time, fastest for the money.
  enum class Goal : uint8_t { kFewest, kCheapest, kFastest };
  Goal goal = Goal::kFewest;
  double limit = 0;  // s, or of kFastest USD
  Condition condition;
  AnswerRow row;
  std::optional<AnswerRow> beyond;  // the next number of devices, if that does not keep to it
  size_t numPlanned = 0;            // numbers of devices that were planned for it
};

struct Answers {
  Sweep sweep;
  std::vector<SweepPoint> points;
  std::vector<std::optional<PointAnswer>> answers;  // of each point
  ScenarioAxes scenarios;
  size_t numBetween = 0;  // of the points, at their end: planned for refinements
  // Deadlines, then budgets, in the order of the scenarios; each under every condition.
  std::vector<Refinement> refinements;

  // Null: nothing keeps to it, or nobody asked.
  const Refinement* refinement(Refinement::Goal goal, double limit,
                               const Condition& condition) const;

  size_t numSwept() const { return points.size() - numBetween; }
};

// "A", "B", ... "Z", "AA": short names of plans in the order in which they win.
std::string letterOf(size_t index);

// Of a point that has a plan.
Training trainingOf(const Answers& answers, size_t point);

// Of one point, all scenarios.
std::vector<AnswerRow> rowsOf(const Answers& answers, size_t point);
// Of all swept points that are answered.
std::vector<AnswerRow> rowsOf(const Answers& answers);

Condition conditionOf(const Answers& answers, const AnswerRow& row);
// Each once, in the order of the rows.
std::vector<Condition> conditionsOf(const Answers& answers, const std::vector<AnswerRow>& rows);

// The rows under a condition that take a time, for the questions of answers.h.
struct ComparedRows {
  std::vector<size_t> places;          // among `rows`
  std::vector<SweepOutcome> outcomes;  // of those; without a price they cost nothing
};
ComparedRows comparedRows(const Answers& answers, const std::vector<AnswerRow>& rows,
                          const Condition& condition);

// Places of those that have a cost and that no other under the same condition beats: paretoFront().
std::vector<size_t> frontOf(const Answers& answers, const std::vector<AnswerRow>& rows);

}  // namespace trireme::planner
