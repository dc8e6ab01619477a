// The files that several subcommands read.
#pragma once
#include <optional>

#include "planner/question.h"

namespace trireme::cli {

using planner::growCluster;
using planner::loadStackOrDefault;
using QueryOptions = planner::Question;

// planner::makeQuery, whose notes (planner::notesOf) go to stderr.
Result<planner::Query> loadQuery(const QueryOptions& options,
                                 std::optional<spec::StackProfile> stack = std::nullopt);

}  // namespace trireme::cli
