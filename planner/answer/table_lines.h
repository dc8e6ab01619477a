// Lines of the tables. Internal to planner/answer.
#pragma once
#include <string>

namespace trireme::planner {

// A line, or more of at most 100 columns: it breaks at spaces, and what follows is indented by
// `indent`.
void appendWrapped(std::string& out, std::string line, size_t indent);

// "step          15.051 s".
void appendField(std::string& out, const std::string& name, const std::string& value);

}  // namespace trireme::planner
