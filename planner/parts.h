// What a step and a rank's memory are made of, by name.
#pragma once
#include <string>
#include <vector>

#include "cost_models/estimate.h"
#include "ir/base/units.h"
#include "planner/query.h"

namespace trireme::planner {

inline constexpr const char* kContextParallel = "context parallel";

struct BreakdownPart {
  std::string name;  // "matrix products", "attention", "tensor parallel", "bubble"...
  Seconds time;
};
// All parts, in this order always; they add up to the step.
std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& breakdown);
// Per cent of their sum, rounded to tenths so that they add up to 100.0: what is lost by rounding
// down goes to those that lost most. All 0 if the sum is.
std::vector<double> percentages(const std::vector<Seconds>& times);

struct MemoryPart {
  std::string name;
  Bytes bytes;
};
std::vector<MemoryPart> memoryParts(const cost::MemoryUse& memory);

// What another plan loses against the winner, and in which part of the step most.
RunnerUp runnerUpOf(const CostedPlan& other, const CostedPlan& winner);

}  // namespace trireme::planner
