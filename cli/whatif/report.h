// The answers of a sweep as text of at most 100 columns. Nothing here prints.
#pragma once
#include <string>

#include "planner/whatif/rows.h"

namespace trireme::cli {

using planner::AnswerRow;
using planner::Answers;

// The scaling table, what it answers (deadlines, budgets, the front of days against cost),
// failures, the plans that win, and why points have none.
std::string toTable(const Answers& answers);

// The first lines of the table: what is asked, and what is the same at all points.
std::string questionOf(const Answers& answers);

// "1.234 M" of 1,234,000.
std::string formatCount(double value);
// "12.3 d", "5.1 h", "3.2 min", "1.2 y": time that a training takes.
std::string formatDuration(Seconds time);

}  // namespace trireme::cli
