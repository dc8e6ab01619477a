// The parts of verifyProgram, one function per label or two. Internal to ir/program.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/symmetry.h"
#include "ir/program/walk.h"

namespace trireme::program::verify {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

// Where one role's program runs.
struct RoleRanks {
  int32_t first = -1;  // its lowest rank
  // Distinct (tpIndex, dpIndex) of its ranks.
  std::vector<std::pair<int32_t, int32_t>> places;
};

struct Context {
  const Program& program;
  std::vector<RoleRanks> roles;
  Symmetry symmetry;
};

// "rank 3 (stage 3) task 5 (F0.2) instruction 7 (recv)". Negative numbers are left out.
std::string where(const Context& context, int32_t role, int32_t task, int32_t body = -1,
                  int32_t instruction = -1);
// "(V3) <where>: <message>"
Status violation(std::string_view label, const std::string& where, const std::string& message);

Status checkIndices(const Program& program);      // (V1) but for the operands
Status checkOperands(const Context& context);     // (V1)
Status checkBounds(const Context& context);       // (V2)
Status checkMessages(const Context& context);     // (V3)
Status checkCollectives(const Context& context);  // (V4)
Status checkProgress(const Context& context);     // (V5)
Status checkContents(const Context& context);     // (V6), (V7) within a stream, (V9) of buckets
Status checkRaces(const Context& context);        // (V7) between streams
Status checkTasks(const Context& context);        // (V8), (V9)
Status checkUse(const Context& context);          // (V1) of buffers that nobody uses

}  // namespace trireme::program::verify
