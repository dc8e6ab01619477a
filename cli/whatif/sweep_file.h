// A sweep as CSV: one record per point and scenario, numbers in SI units and in full, so that a
// file holds what the planner answered and an interrupted sweep can go on.
//
// The first cell of a record names the question: a hash of the program's version, model, training,
// stack and cluster, all that changes an answer but the point itself. The economics behind the
// answer are for the reader; they are computed anew when the file is read.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "planner/whatif/rows.h"

namespace trireme::cli {

using planner::Answers;

// Of every hardware of the sweep, 16 hexadecimal digits. `stackText`: what the profile was read of.
std::vector<std::string> questionsOf(const planner::Sweep& sweep, const std::string& stackText);

std::string headerRecord();
// Of one answered point, all its scenarios; each ends with a line feed.
std::string recordsOf(const Answers& answers, const std::vector<std::string>& questions,
                      size_t point);
// Header and all answered points in order.
std::string toCsv(const Answers& answers, const std::vector<std::string>& questions);

// Whether the file is there and holds answers of a sweep, of any version.
bool holdsAnswers(const std::string& path);
// Whether it is there and holds anything but a sweep that has answers or was about to have some.
bool holdsOther(const std::string& path);

// Fills in the answers of the points that `text` holds. An incomplete last line is dropped: there
// the sweep was interrupted. kInvalidArgument, with file and line: no sweep, a damaged record, one
// of another question or of a point that is not asked for.
Status readAnswers(const std::string& text, const std::string& name,
                   const std::vector<std::string>& questions, Answers& answers);

}  // namespace trireme::cli
