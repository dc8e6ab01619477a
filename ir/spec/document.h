// For languages that embed specs in their own documents.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/spec/training_spec.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// Reads up to one byte more than `limit`, so that a parser sees that there is too much. Errors:
// kUnavailable.
Result<std::string> readFile(const std::string& path, size_t limit = kMaxDocumentBytes);

// The training settings at `node` of `file`; `path` comes before the keys in messages
// ("training."). Those that name no precision have the `usual` one. Errors: kInvalidArgument with
// file, line and column.
Result<TrainingSpec> readTraining(const std::string& file, const Node& node,
                                  const std::string& path, Precision usual = Precision::kFp32);

}  // namespace trireme::spec
