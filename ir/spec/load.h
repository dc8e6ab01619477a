// Reads specs from YAML or, if the name ends in .json, JSON. Every error names file, line, column,
// what was expected and, for a misspelt key, the nearest valid one. Unknown keys are errors.
// Nothing is defaulted silently where the model would change.
//
// A model, cluster or stack is named by a path, or as one that is shipped (shipped.h): "gpt3-175b",
// "dgx-a100", "nemo". Of a shipped one and a file of the same name the shipped one is meant; ./name
// is the file.
//
// Errors: kInvalidArgument (content), kUnavailable (the file cannot be read).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"
#include "ir/spec/training_spec.h"

namespace trireme::spec {

// Our own model YAML (keys: ir/spec/README.md), or a Hugging Face config.json (recognised by
// `model_type`: gpt2, llama, mistral, qwen2). A Hugging Face option that changes the computation
// and is not supported (other rope_scaling than linear and llama3, sliding_window in use, unknown
// activation...) is refused by name.
Result<ModelSpec> loadModel(const std::string& path);
Result<ModelSpec> parseModel(const std::string& text, const std::string& name);

// A dropout probability that a Hugging Face config.json asks for. It is a training setting, so it
// counts only if the training file has it as well: who loads the model has to say so.
struct ForeignDropout {
  std::string_view option;  // "attn_pdrop"
  std::string_view key;     // of the training file: "attention_dropout"
  double probability = 0;
};
// All of the file; none for our own YAML. Errors: also those of parsing it.
Result<std::vector<ForeignDropout>> loadForeignDropout(const std::string& path);

// Sequence length and batch may be absent (0): the command line gives them. A file that names no
// precision means the `usual` one, of the stack on the device (usualPrecision).
Result<TrainingSpec> loadTraining(const std::string& path, Precision usual);
Result<TrainingSpec> parseTraining(const std::string& text, const std::string& name,
                                   Precision usual = Precision::kFp32);

Result<ClusterSpec> loadCluster(const std::string& path);
Result<ClusterSpec> parseCluster(const std::string& text, const std::string& name);
// The device of a shipped file, without a cluster; adds to `sources`, below "device.".
// kInvalidArgument: there is none of this name.
Result<DeviceSpec> shippedDevice(const std::string& name, Sources* sources);

Result<StackProfile> loadStack(const std::string& path);
Result<StackProfile> parseStack(const std::string& text, const std::string& name);

// The inverse of parseModel / parseTraining / parseCluster: round-trips exactly, sources included.
std::string printModel(const ModelSpec& model);
std::string printTraining(const TrainingSpec& training);
// Where two models differ but for their names, in the order of printModel(): lines of it, or "no
// rope_scaling".
struct ModelDifference {
  std::string first, second;  // "layers: 4", "layers: 8"
};
std::vector<ModelDifference> differencesOf(const ModelSpec& first, const ModelSpec& second);
// kInvalidArgument: a number has no source, or the cluster breaks a rule of the loader; the message
// starts with "printed cluster:line:column".
Result<std::string> printCluster(const ClusterSpec& cluster);
std::string_view precisionName(Precision precision);      // fp64, fp32, bf16, fp16, fp8
std::string precisionText(const TrainingSpec& training);  // the same, or "fp32 with tf32"

// Checks that the values make sense together (positive sizes, heads divide...).
Status verifyModel(const ModelSpec& model);
Status verifyTraining(const TrainingSpec& training, const ModelSpec& model);

}  // namespace trireme::spec
