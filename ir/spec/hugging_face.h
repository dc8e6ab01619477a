// Reads a Hugging Face config.json of gpt2, llama, mistral or qwen2.
//
// An absent option has the default that the `transformers` library gives it. An option that changes
// the computation and has no counterpart in ModelSpec is refused by name; one that cannot change it
// is ignored; one that is not known either way is refused. `architectures`, where it is given, must
// name the causal language model of its model_type, or that without its head. The model's name is
// that of `_name_or_path` or, without it, of the file's folder (of the file, if it is no
// config.json), so that sizes of a family differ.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/load.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// `root` is the document of file `name`. Errors: kInvalidArgument, with the place.
Result<ModelSpec> importHuggingFace(const Node& root, const std::string& name);

// The dropout options of the same document; none if it is not of Hugging Face.
Result<std::vector<ForeignDropout>> importDropout(const Node& root, const std::string& name);

}  // namespace trireme::spec
