// Whether a Megatron-LM command line trains the model that it is priced with. Internal to
// codegen/import.
#pragma once
#include <string>

#include "codegen/import/megatron_flags.h"
#include "ir/spec/model_spec.h"

namespace trireme::codegen {

// Beside it what is missing of the model is its checkpoint's (load_args_from_checkpoint()).
inline constexpr const char* kCheckpointArgs = "--use-checkpoint-args";

// Fails unless `isSame`: the flag, or what it means to leave it out, says `asked`, and the model
// `model`. Nothing of a checkpoint's.
void expectModel(Flags& flags, const std::string& name, bool isSame, const std::string& asked,
                 const std::string& model);

// That the command trains `m`. What only initialises or labels is not compared.
void checkModel(Flags& flags, const spec::ModelSpec& m);

}  // namespace trireme::codegen
