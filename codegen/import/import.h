// A plan from a file of another program, whichever it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/export/framework.h"
#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::codegen {

// Bytes per parameter that a file sets and its stack's profile says otherwise.
struct ParameterWidths {
  std::optional<double> gradient, reducedGradient, gatheredParameter;
  std::optional<bool> gathersF8;
  std::optional<double> stepWork;  // bytes that the optimizer's step holds beside its gradients
  bool operator==(const ParameterWidths&) const = default;
};

// Switches that a file leaves out of communication that would run beside computation; empty: it has
// them, or its program needs none. Reductions of gradients, gathers of parameters, and collectives
// of tensor parallelism.
struct MissingOverlap {
  std::string gradients, gathers, tensors;
  bool operator==(const MissingOverlap&) const = default;
};

struct Imported {
  plan::Plan plan;  // legal: plan::verifyPlan
  ParameterWidths widths;
  MissingOverlap missing;
  bool loaderMasks = false;            // StackDescription::loaderMasks
  bool compilesLoss = true;            // where the model is compiled (torchtitan)
  bool exposesTransfers = false;       // between stages: none runs beside computation
  std::optional<Framework> framework;  // whose file it is; absent: a plan of ours
  int64_t ranksPerHost = 0;            // that its launcher starts on each; 0: it is not said
  std::vector<std::string> unpriced;   // settings that say nothing of the plan, or are not known
  std::vector<std::string> notes;      // what is priced otherwise than the file says, and why
};

// What files leave to the launcher or to the user's script: taken where a file does not say it, and
// an error where it says something else.
struct LaunchOptions {
  std::optional<int64_t> gpus, tp, sequence, batch, microbatch;
  std::optional<plan::Recompute> recompute;
  bool operator==(const LaunchOptions&) const = default;
};

// Whose file it is, by its name and what is in it: TOML (or the tables of its file) is
// torchtitan's; JSON with the keys of
// DeepSpeed; a text that names --micro-batch-size Megatron-LM's. None: something else, such as a
// plan of ours.
std::optional<Framework> frameworkOfFile(const std::string& text, const std::string& file);

// kInvalidArgument, with file and line: a value makes no sense; the model differs from `model`, or
// has parts that a ModelSpec cannot say; the plan needs what neither the file nor `launch` says
// (all of it is named); the plan breaks a rule of verifyPlan.
// Requires a framework that frameworkOfFile() names.
Result<Imported> importPlan(Framework framework, const std::string& text, const std::string& file,
                            const spec::ModelSpec& model, const LaunchOptions& launch);

// A plan of ours, which says all that `launch` could, or importPlan() of whose file it is. Errors:
// as importPlan() and plan::parsePlan().
Result<Imported> readPlan(const std::string& text, const std::string& file,
                          const spec::ModelSpec& model, const LaunchOptions& launch);
// Sets what the file's `widths` has, its loader's masks and what its loss keeps, and says what
// differs from the profile, for plans do not hold it: empty if nothing does. Programs of Trireme's
// own have no such choice.
std::string setWidths(const Imported& imported, const std::string& file, spec::StackProfile& stack);
// Counts in full what the file's `missing` leaves out, of the plan and of others that its program
// could run, and returns its switches: empty if the stack hides nothing in any case, or is of
// another program.
std::vector<std::string> setOverlap(const Imported& imported, spec::StackProfile& stack);
// What the user should know of it, a line each.
std::vector<std::string> notesOf(const Imported& imported, const std::string& file);

}  // namespace trireme::codegen
