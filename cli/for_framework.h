// --for: only plans that a program can run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/export/framework.h"
#include "planner/query.h"

namespace trireme::cli {

// Of the profile at `path`, or else the framework's own, what the framework has as well; without a
// framework the profile. Errors: spec::loadStack, codegen::restrictedTo.
Result<spec::StackProfile> loadStackFor(const std::string& path,
                                        std::optional<codegen::Framework> framework);

// Other software that may be proposed: who named the program has named its stack.
Result<std::vector<spec::StackProfile>> stacksBeside(std::optional<codegen::Framework> framework);
// What is predicted is not always what runs: of a stack that does not describe the framework.
std::optional<std::string> noteOfStack(const std::string& stack, codegen::Framework framework);

// kInvalidArgument: the framework cannot express the query's model, training settings or pins; all
// of it is named.
Status checkAsked(const planner::Query& query, codegen::Framework framework);

}  // namespace trireme::cli
