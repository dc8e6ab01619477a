// A plan from a file of another program, whichever it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"

namespace trireme::codegen {

struct Imported {
  plan::Plan plan;                    // legal: plan::verifyPlan
  std::vector<std::string> unpriced;  // settings that say nothing of the plan, or are not known
};

// What files leave to the launcher or to the user's script: taken where a file does not say it, and
// an error where it says something else.
struct LaunchOptions {
  std::optional<int64_t> gpus, tp, sequence, batch, microbatch;
  std::optional<plan::Recompute> recompute;
  bool operator==(const LaunchOptions&) const = default;
};

enum class ForeignFormat : uint8_t { kMegatron, kTorchtitan, kDeepspeed };

// By the file's name and what is in it: TOML is torchtitan's; JSON with the keys of DeepSpeed; a
// text that names --micro-batch-size. None: something else, such as a plan of ours.
std::optional<ForeignFormat> foreignFormat(const std::string& text, const std::string& file);

// kInvalidArgument, with file and line: a value makes no sense; the model differs from `model`, or
// has parts that a ModelSpec cannot say; the plan needs what neither the file nor `launch` says
// (all of it is named); the plan breaks a rule of verifyPlan.
Result<Imported> importPlan(ForeignFormat format, const std::string& text, const std::string& file,
                            const spec::ModelSpec& model, const LaunchOptions& launch);

}  // namespace trireme::codegen
