// Partitions as text and as JSON. Nothing here prints.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/partition/pipedream.h"
#include "planner/partition/piper.h"

namespace trireme::planner {

// The question and the answer, in lines of at most 100 columns unless ids are longer.
std::string toTable(const PipedreamProblem& problem, const PipedreamPartition& partition);
std::string toTable(const PiperProblem& problem, const PiperPartition& partition);

// Everything, in SI units (seconds, bytes), keys in lower camel case, layers by their ids.
nlohmann::json toJson(const PipedreamProblem& problem, const PipedreamPartition& partition);
nlohmann::json toJson(const PiperProblem& problem, const PiperPartition& partition);

}  // namespace trireme::planner
