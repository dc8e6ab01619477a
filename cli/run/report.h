// What a run did, as text and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/process_memory.h"
#include "cli/run/training_loop.h"
#include "ir/base/units.h"
#include "ir/program/program.h"

namespace trireme::cli {

struct RunReport {
  std::string model, plan;  // its name; the plan in a line
  int64_t numRanks = 1, tokensPerStep = 0;
  LoopResult loop;  // at least one step
  Bytes arenas;     // of all ranks
  ProcessMemory memory;
  std::optional<Seconds> predictedStep;  // of cost::estimate, if the cluster was given
  // For the page: "measured", the last step, and "predicted", the simulated one, if the cluster was
  // given; planner::toJson of a Timeline.
  nlohmann::json timelines = nlohmann::json::object();
};

// The median, without the first step, which is slower (pages are touched, threads start).
Seconds measuredStep(const LoopResult& loop);

std::string shortReport(const RunReport& report);  // one line
std::string longReport(
    const RunReport& report);  // lines of at most 100 columns, with the loss curve
nlohmann::ordered_json jsonReport(const RunReport& report);

}  // namespace trireme::cli
