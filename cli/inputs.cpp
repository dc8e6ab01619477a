#include "cli/inputs.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/output/tell.h"

namespace trireme::cli {

Result<planner::Query> loadQuery(const QueryOptions& options,
                                 std::optional<spec::StackProfile> stack) {
  TRIREME_ASSIGN_OR_RETURN(planner::Query query, planner::makeQuery(options, std::move(stack)));
  TRIREME_ASSIGN_OR_RETURN(std::vector<std::string> notes,
                           planner::notesOf(options, query.training));
  for (std::string& note : planner::sizeNotesOf(query)) notes.push_back(std::move(note));
  for (std::string& caveat : planner::caveatsOf(query.stack, query.cluster.device))
    notes.push_back(std::move(caveat));
  for (const std::string& note : notes) tell("note: {}\n", note);
  return query;
}

}  // namespace trireme::cli
