// What a bundle is compiled for.
#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace trireme::program {

// What the machine must have: checked before any kernel is loaded.
struct Target {
  std::string arch;                      // "x86-64", "cuda:sm_90", "cuda:sm_80,sm_90"
  std::vector<std::string> cpuFeatures;  // "avx512f", "avx2", ... by CPUID name; of GPUs none
};

// Whether `arch` is of GPUs: "cuda:...".
bool isGpuArch(std::string_view arch);

inline constexpr int kLeastCapability = 80;  // of GPUs that there is code for

// A GPU that code is compiled for, as NVIDIA names it. Code for compute capability 9.0 runs on 9.x
// with x >= 0, PTX for it on all that are no older. Where the name ends in "a", both run on exactly
// that capability, and nowhere else.
struct GpuTarget {
  int capability = 0;     // 90: compute capability 9.0
  bool exact = false;     // "sm_90a"
  std::string_view name;  // of a constant

  auto operator<=>(const GpuTarget&) const = default;  // the oldest first, "a" after the same
};

// Those of "cuda:sm_80,sm_90", named in any order; at least one, sorted. kInvalidArgument: not a
// list of targets, each once; names the nearest valid choice.
Result<std::vector<GpuTarget>> parseGpuTargets(std::string_view arch);
// The inverse.
std::string printGpuTargets(const std::vector<GpuTarget>& targets);

// Of sorted ones: what PTX is made for, so that as many GPUs run it as can be. The oldest that
// later GPUs run, else (each is exact) the first.
const GpuTarget& ptxTarget(const std::vector<GpuTarget>& targets);

// Whether a GPU of compute capability `capability` runs what is compiled for the targets.
bool runsOn(const std::vector<GpuTarget>& targets, int capability);

// The newest target whose code or PTX a GPU of compute capability `capability` runs, none of "a";
// nothing if the GPU is too old for each.
std::optional<GpuTarget> nearestTarget(int capability);

std::string capabilityName(int capability);  // 90: "9.0"

}  // namespace trireme::program
