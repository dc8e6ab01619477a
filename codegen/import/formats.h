// The readers of the formats, one per program. Internal to codegen/import.
#pragma once
#include <string>
#include <vector>

#include "codegen/import/import.h"

namespace trireme::codegen {

// Errors: importPlan's. The plan is not verified yet.

// The command line of Megatron-LM's pretrain_gpt.py, or a script with it. Flags as in
// megatron/training/arguments.py, commit 000c4ac2, with the defaults that it gives. The ranks are
// those of torchrun in the same text (--nnodes x --nproc-per-node), or of the launch options.
Result<Imported> importMegatron(const std::string& text, const std::string& file,
                                const spec::ModelSpec& model, const LaunchOptions& launch);

// torchtitan's TOML: settings and defaults of torchtitan/config/job_config.py, v0.2.2, and the
// names and places that earlier versions have for the same, since 2024.
Result<Imported> importTorchtitan(const std::string& text, const std::string& file,
                                  const spec::ModelSpec& model, const LaunchOptions& launch);

// DeepSpeed's JSON: docs/_pages/config-json.md, commit 00376da4; how the batch sizes follow from
// each other: _set_batch_related_parameters() of deepspeed/runtime/config.py.
Result<Imported> importDeepspeed(const std::string& text, const std::string& file,
                                 const spec::ModelSpec& model, const LaunchOptions& launch);

// A JSON text with blanks for comments (#, //, /* */) and for commas behind the last element, which
// DeepSpeed's reader (hjson) takes as well.
std::string plainJson(std::string text);

// The plan's model, and what its file does not say and the options do.
plan::Plan planFor(const spec::ModelSpec& model, const char* stack);

// Of a value that is not among those that are priced: that it cannot be, as it is one that the
// program takes, to which `nearest` is; or the nearest ones.
std::string whyNotAmong(const std::string& given, const std::vector<std::string>& choices,
                        const std::string& nearest, const std::vector<std::string>& unpriced);

// kInvalidArgument: `missing` is not empty; one message names all of it.
Status askFor(const std::string& file, const std::vector<std::string>& missing);

}  // namespace trireme::codegen
