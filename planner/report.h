// Answers as text and as JSON. Nothing here prints.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/query.h"

namespace trireme::planner {

// "tp 8, pp 2, dp 4, microbatch 1, interleaved x 3, recompute selective, sequence parallel": what
// is off is not named.
std::string summary(const plan::Plan& plan);

// "13, 12 (x 3)": layers of every stage, those of its chunks joined by '+'.
std::string layersText(const plan::Plan& plan);

struct BreakdownPart {
  std::string name;  // "forward", "backward", "tensor parallel", "pipeline", "bubble"...
  Seconds time;
};
// All parts, in this order always; they add up to the step.
std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& breakdown);
// Parameters, gradients, optimizer, activations, scratch, workspace, other, attention, reserve.
struct MemoryPart {
  std::string name;
  Bytes bytes;
};
std::vector<MemoryPart> memoryParts(const cost::MemoryUse& memory);

// The answer in lines of at most 100 columns: plan, layers, time, memory, runners-up, certificate.
std::string toTable(const PlanResult& result);

// Everything, in SI units (seconds, bytes), keys in lower camel case. `plan` is the plan's own text
// form as a string, so that it has one format only.
nlohmann::json toJson(const PlanResult& result);

}  // namespace trireme::planner
