// A model's parameters as Hugging Face transformers names and cuts them.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/spec/model_spec.h"
#include "runtime/checkpoint/foreign.h"

namespace trireme::cli {

// gpt2: matrices are stored [in, out] (Conv1D), queries, keys and values of all heads one after the
// other. llama, mistral, qwen2: [out, in], queries, keys and values apart, gate and up apart. Ours
// are grouped by key/value head: its queries, its key, its value (ir/graph/README.md).
// Layouts: modeling_gpt2.py, modeling_llama.py and modeling_qwen2.py of transformers 4.
//
// kInvalidArgument: none of these families computes what the model does; says what differs.
Result<runtime::ForeignWeights> huggingFaceWeights(const spec::ModelSpec& model);

// The config.json that belongs to them; loadModel() of it gives `model` again, but for its name.
Result<std::string> huggingFaceConfig(const spec::ModelSpec& model);

}  // namespace trireme::cli
