// A sweep as users ask for it, and its answers as JSON: what `trireme whatif` and its Python twin
// share.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/question.h"
#include "planner/whatif/rows.h"

namespace trireme::planner {

struct SweepQuestion {
  Question question;              // the cluster may be empty if there are GPUs
  std::vector<std::string> gpus;  // names in place of the cluster: hardware.h
  Pins pins;                      // at all points, but for `gpus`
  SweepAxes axes;
  ScenarioAxes scenarios;
  std::optional<spec::StackProfile> stack;  // instead of the question's
};

// All points, none answered. As many prices or powers as GPUs, more than one: each has its own;
// otherwise those that repeat count once. kInvalidArgument: no cluster, or one twice; scenarios
// that checkScenarios refuses; errors of makeQuery and clusterOfGpu.
Result<Answers> makeAnswers(const SweepQuestion& question);

// Of all its hardware (question.h), each once.
std::vector<std::string> caveatsOf(const Sweep& sweep);

// kInvalidArgument: something is asked without what it needs (a price without tokens...), or more
// spares than a cluster has devices.
Status checkScenarios(const ScenarioAxes& scenarios);

// kInfeasible: every point is answered, and none has a plan: why the first has none and what would
// give it one, as shortfallOf() says with what `stacks` loads. Errors of either otherwise.
using LoadStacks = std::function<Result<std::vector<spec::StackProfile>>()>;
Status checkAnswered(const Answers& answers, const LoadStacks& stacks,
                     const SearchProgress& progress = {});

// All that is answered, in SI units, keys in lower camel case.
nlohmann::json toJson(const Answers& answers);

}  // namespace trireme::planner
