// The simulated step of `trireme compile --cluster`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/training_spec.h"

namespace trireme::cli {

struct SimulateOptions {
  std::string cluster;  // empty: do not simulate
  std::string stack;
  std::string trace;  // where the Perfetto trace goes; empty: nowhere
};

// A trace of up to so many ranks has all of them, as that of `run --trace` has, so that one can be
// laid upon the other. Of more it has one rank of each kind: ranks that cannot be told apart take
// equal time, and thousands of rows show nobody anything.
inline constexpr int32_t kMostTracedRanks = 64;

// Time of one step of a verified program of `plan`. A scalable cluster has as many devices as the
// program ranks, if more than its own (withRoomFor). kInvalidArgument: another has fewer, or
// devices with less memory than an arena takes, or the stack runs programs of its own; others:
// those of the specs, cost::simulate and writeFile.
Result<std::optional<Seconds>> simulateStep(const SimulateOptions& options, const plan::Plan& plan,
                                            const program::Program& program);

}  // namespace trireme::cli
