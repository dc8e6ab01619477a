// What `trireme plan` and `trireme whatif` are asked, as users name it: files or shipped names.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"
#include "ir/spec/training_spec.h"
#include "planner/query.h"

namespace trireme::planner {

// Trireme's own runtime.
spec::StackProfile ownStack();

// The stack profile at `path`; Trireme's own if the path is empty. Errors: spec::loadStack.
Result<spec::StackProfile> loadStackOrDefault(const std::string& path);

struct Question {
  std::string model, cluster, training, stack;  // paths or names; training and stack may be empty
  std::optional<int64_t> batch, sequence;       // instead of the training file's
  std::optional<spec::Precision> precision;
  std::optional<int64_t> vocabMultiple;  // instead of the stack's
};

// How it trains on `device`: with what the command line says, or else the training file, or else,
// of the precision, what is usual (spec::usualPrecision). Errors: spec::loadTraining.
Result<spec::TrainingSpec> trainingOf(const Question& question, const spec::StackProfile& stack,
                                      const spec::DeviceSpec& device);

// Loads all of it; nothing is pinned. `stack`: instead of the one that the question names.
// kInvalidArgument: batch or sequence length are missing; errors of the loaders.
Result<Query> makeQuery(const Question& question,
                        std::optional<spec::StackProfile> stack = std::nullopt);

// Which dropout of a Hugging Face config.json the training settings leave out, a line each.
Result<std::vector<std::string>> notesOf(const Question& question,
                                         const spec::TrainingSpec& training);

// Sizes that tensor cores do not take as they are, a line each with the nearest that they do. Of a
// query in fp8 those that its products cannot have (plan::fp8Breach) whatever the degrees, or in
// few microbatches alone. In 16 bits, and in fp8 too, a vocabulary that 8 does not divide: its
// products take kernels that no estimate prices.
std::vector<std::string> sizeNotesOf(const Query& query);

// What an answer for the stack on the device rests on less than others do, a line each: no measured
// run, or the stack's or the device's own caution.
std::vector<std::string> caveatsOf(const spec::StackProfile& stack, const spec::DeviceSpec& device);

// Gives the cluster from `path` the devices that --gpus wants beyond what it has: more of the same,
// if its file says that there are. Fewer are a part of it, and no business of this function.
// kInvalidArgument: there are no more; the message says what would help.
Status growCluster(std::optional<int64_t> gpus, const std::string& path,
                   spec::ClusterSpec& cluster);

// Keeps so much of a device's memory free, "7%" or "5 GiB". kInvalidArgument: it is neither, or
// all.
Status keepFree(std::string_view headroom, spec::DeviceSpec& device);

// All software that is shipped. kInvalidArgument: a file of it is damaged.
Result<std::vector<spec::StackProfile>> shippedStacks();

}  // namespace trireme::planner
