#include "ir/program/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/program/verify_internal.h"

namespace trireme::program {
namespace verify {

std::string where(const Context& context, int32_t role, int32_t task, int32_t body,
                  int32_t instruction) {
  const Role& r = context.program.roles[at(role)];
  std::string text = fmt::format("rank {} ({})", context.roles[at(role)].first, r.name);
  if (task >= 0) {
    text += fmt::format(" task {} ({})", task, taskName(r.tasks[at(task)]));
    if (body < 0) body = r.tasks[at(task)].body;
  }
  if (body >= 0 && instruction >= 0)
    text += fmt::format(" instruction {} ({} in {})", instruction,
                        instructionName(r.bodies[at(body)].instructions[at(instruction)].kind),
                        r.bodies[at(body)].name);
  return text;
}

Status violation(std::string_view label, const std::string& where, const std::string& message) {
  return invalidArgument(fmt::format("({}) {}: {}", label, where, message));
}

namespace {

std::vector<RoleRanks> ranksOfRoles(const Program& program) {
  std::vector<RoleRanks> roles(program.roles.size());
  for (int32_t rank = 0; rank < program.numRanks(); ++rank) {
    const RankInfo& info = program.ranks[at(rank)];
    RoleRanks& role = roles[at(info.role)];
    if (role.first < 0) role.first = rank;
    role.places.push_back({info.tpIndex, info.dpIndex});
  }
  for (RoleRanks& role : roles) {
    std::sort(role.places.begin(), role.places.end());
    role.places.erase(std::unique(role.places.begin(), role.places.end()), role.places.end());
  }
  return roles;
}

}  // namespace
}  // namespace verify

Status verifyProgram(const Program& program) {
  using namespace verify;
  TRIREME_RETURN_IF_ERROR(checkIndices(program));
  const Context context{program, ranksOfRoles(program), findSymmetry(program)};
  TRIREME_RETURN_IF_ERROR(checkOperands(context));
  TRIREME_RETURN_IF_ERROR(checkBounds(context));
  TRIREME_RETURN_IF_ERROR(checkTasks(context));
  TRIREME_RETURN_IF_ERROR(checkMessages(context));
  TRIREME_RETURN_IF_ERROR(checkCollectives(context));
  TRIREME_RETURN_IF_ERROR(checkProgress(context));
  TRIREME_RETURN_IF_ERROR(checkContents(context));
  TRIREME_RETURN_IF_ERROR(checkRaces(context));
  return checkUse(context);
}

}  // namespace trireme::program
