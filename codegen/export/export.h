// A plan in the words of the program that is to run it: Megatron-LM's arguments, Megatron-Bridge's
// overrides, torchtitan's TOML, DeepSpeed's JSON, Accelerate's YAML; and the scripts that launch
// it.
//
// Nothing is left out silently: what the program cannot express is an error (framework.h), and what
// is not in its file, because it belongs to the user's script or to no plan, is a note.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/export/framework.h"

namespace trireme::codegen {

struct ExportOptions {
  std::optional<int64_t> steps;     // of the whole training; absent: warm-up + decay, if it decays
  spec::StackSettings settings;     // of the profile that the plan is made for
  double gradientBytes = 4;         // of the same: per parameter, where 16 bits are computed with
  double reducedGradientBytes = 4;  // of the same: per parameter that ranks reduce
  bool gathersF8 = false;           // of the same: weights that ranks gather are in fp8
  bool overlapsTensorParallel = false;  // of the same: it hides collectives behind products
  bool overlapsGradients = true;        // and their reduction behind the backward
};

// Whether the plan's weights are in fp8 already when ranks gather them, which takes a sharded
// optimizer.
bool gathersF8(const plan::Plan& plan, const ExportOptions& options);

// What a profile says and no plan does.
void setStack(const spec::StackProfile& stack, ExportOptions& options);

// One flag of a command line; without a value it is a switch.
struct Argument {
  std::string flag;  // "--tensor-model-parallel-size"
  std::optional<std::string> value;
  bool operator==(const Argument&) const = default;
};

struct Exported {
  // What the program reads: a file or, without a file name, the arguments of its command line,
  // one per line and quoted for a shell.
  std::string fileName, text;
  std::vector<std::string> environment;  // NAME=VALUE of every rank
  std::vector<std::string> command;      // words behind `torchrun` or `accelerate launch`
  std::vector<std::string> notes;        // sentences for the user
};

// Requires plan::verifyPlan(plan, model).
// kInvalidArgument: the framework cannot express the plan (misfitsOf).
Result<Exported> exportPlan(const plan::Plan& plan, const spec::ModelSpec& model,
                            Framework framework, const ExportOptions& options = {});

// The arguments of pretrain_gpt.py, in groups: model, training, parallelism, state, recompute.
std::vector<Argument> megatronArguments(const plan::Plan& plan, const spec::ModelSpec& model,
                                        const ExportOptions& options);

// The framework that a stack profile describes, by the profile's name; none that is exported to:
// absent.
std::optional<Framework> frameworkOfStack(std::string_view stack);
// Whether what it describes is the program that files are written for, and no earlier one.
bool isOf(std::string_view stack, Framework framework);

enum class Launcher : uint8_t { kTorchrun, kSlurm, kMpirun };

// The text that a user saves. Torchrun: the file of the framework, with the command in a comment
// where the format has comments, or a script that runs on every node; the others: one script that
// starts every rank, with the file in it.
std::string printExport(const Exported& exported, const plan::Plan& plan, Framework framework,
                        Launcher launcher);

}  // namespace trireme::codegen
