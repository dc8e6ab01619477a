#include "planner/certainty.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/format.h"

namespace trireme::planner {
namespace {

constexpr double kReserveInDoubt = 0.5;

bool isOwn(const cost::Estimate& e) { return !e.memoryOfStages.empty(); }

}  // namespace

// Published peaks of software that others make are 3.0 to 6.7 % off on average, by source
// (cost_models/VALIDATION.md), and frameworks' own fragments come on top.
Bytes certainMemory(const cost::Estimate& e) {
  const Bytes all = e.memoryAvailable + e.headroom;
  return std::min(isOwn(e) ? all - e.memory.reserve * kReserveInDoubt : all * kCertainShare,
                  e.memoryAvailable);
}

std::string certainRoomText(const cost::Estimate& e) {
  return isOwn(e) ? formatBytes(e.memory.reserve * kReserveInDoubt)
                  : fmt::format("{:.0f} %", 100 * (1 - kCertainShare));
}

bool isTight(const cost::Estimate& e) { return e.fits() && e.memory.total() > certainMemory(e); }

std::string doubtText(bool ownPrograms) {
  return ownPrograms ? "the reserve is an estimate" : "peaks are 3 to 7 % off";
}

std::string doubtText(const cost::Estimate& e) { return doubtText(isOwn(e)); }

}  // namespace trireme::planner
