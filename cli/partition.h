// `trireme plan --profile`: cuts a measured model into replicated stages.
#pragma once
#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"

namespace trireme::cli {

enum class PartitionMethod : uint8_t { kSosp19, kArxiv18, kReleased, kPiper };

struct PartitionOptions {
  std::string profile;  // path; empty: nothing is to be partitioned
  std::optional<PartitionMethod> method;
  std::vector<int64_t> levels;  // components, innermost first
  std::vector<BytesPerSecond> bandwidths;
  std::optional<Bytes> memory;
  bool noMemoryLimit = false;  // --memory none
  std::optional<int64_t> microbatches;
  std::optional<bool> transfers, idle;
};

// What `plan` has read besides.
struct PartitionInputs {
  std::optional<int64_t> gpus;
  std::string cluster;  // path; may be empty
  std::string output;   // path; may be empty
  bool json = false;
};

// Declares --profile and the flags that need it. --profile goes with --gpus, --cluster, --json and
// -o alone: it excludes every other flag that `app` has so far and makes none of them required.
void addPartition(CLI::App& app, PartitionOptions* options);

// Partitions, prints the answer and writes it (as JSON) to `output`.
//
// Errors: those of spec::loadProfile, spec::loadCluster, partitionPipedream and partitionPiper;
// kInvalidArgument for flags that contradict each other, or leave out devices, bandwidth or, for
// Piper, microbatches.
Result<int> runPartition(const PartitionOptions& options, const PartitionInputs& inputs);

}  // namespace trireme::cli
