#include "planner/certainty.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/format.h"

namespace trireme::planner {
namespace {

constexpr double kReserveInDoubt = 0.5;

bool isOwn(const cost::Estimate& e) { return !e.memoryOfStages.empty(); }

}  // namespace

Bytes certainMemory(const cost::Estimate& e) {
  const Bytes all = e.memoryAvailable + e.headroom;
  return std::min(isOwn(e) ? all - e.memory.reserve * kReserveInDoubt : all * (1 - e.memoryDoubt),
                  e.memoryAvailable);
}

std::string certainRoomText(const cost::Estimate& e) {
  return isOwn(e) ? formatBytes(e.memory.reserve * kReserveInDoubt)
                  : fmt::format("{:.0f} %", 100 * e.memoryDoubt);
}

bool isTight(const cost::Estimate& e) { return e.fits() && e.memory.total() > certainMemory(e); }

std::string doubtText(const spec::StackProfile& stack) {
  if (stack.ownPrograms) return "the reserve is an estimate";
  const double doubt = stack.description.memoryDoubt;
  return doubt > spec::kUsualMemoryDoubt ? fmt::format("peaks may be {:.0f} % off", 100 * doubt)
                                         : "peaks are 3 to 7 % off";
}

std::string doubtText(const cost::Estimate& e) {
  spec::StackProfile stack;
  stack.ownPrograms = isOwn(e);
  stack.description.memoryDoubt = e.memoryDoubt;
  return doubtText(stack);
}

}  // namespace trireme::planner
