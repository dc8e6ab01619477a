// JSON documents as the same trees. Internal to ir/spec.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// `text` is valid UTF-8. Numbers, true and false keep their spelling. Errors: kInvalidArgument.
Result<Node> parseJson(const std::string& text, const std::string& name);

}  // namespace trireme::spec
