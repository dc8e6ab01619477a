// What the training software does with a plan. The hardware says nothing of this.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/sources.h"
#include "ir/spec/stack_description.h"
#include "ir/spec/training_spec.h"

namespace trireme::spec {

// Whence products in fp8 have their scales: from the tensors of earlier steps (delayed scaling of
// Transformer Engine), from the tensor itself, from each of its rows, from each block of 32 (MX).
enum class Fp8Recipe : uint8_t { kDelayed, kCurrent, kRowwise, kMx };
std::string_view fp8RecipeName(Fp8Recipe recipe);  // delayed, current, rowwise, mx

// What the description is one of, in the settings of the program itself: for its files. No cost
// follows from it.
struct StackSettings {
  std::optional<Fp8Recipe> fp8;  // absent: it does not train in fp8
  // What it multiplies in fp8 has a multiple of so many rows, and of so many columns: inputs
  // (tokens x inner width) and weights (outer width x inner width), as a rank has them.
  int64_t fp8Rows = 1, fp8Columns = 1;
  bool compiled = false;  // by torch.compile
  bool asyncTensorParallel = false;
  bool operator==(const StackSettings&) const = default;
};

// What a plan for a stack may choose. Everything else is off; data parallelism and one microbatch
// after the other need no choice.
enum class StackChoice : uint8_t {
  kTensorParallel,
  kSequenceParallel,
  kContextParallel,
  kPipeline,
  kGpipe,
  kInterleaved,
  kZeroBubble,  // gradients of weights apart, into the pipeline's gaps
  kScatterGather,
  kShardOptimizer,
  kShardGradients,
  kShardParameters,
  kReplicatedShards,  // state shared by some data-parallel ranks, the same by others (HSDP)
  kRecomputeSelective,
  kRecomputeFull,
  kRecomputeLayers,    // of some layers of a stage
  kOverlapReductions,  // of own programs; what others overlap their descriptions say
  kRankOrder,          // the stages of a replica next to each other
};

// Which choices a program takes together alone (plan::breachOf). Of no profile: they come with the
// program that a plan is for.
enum class StackRule : uint8_t {
  kSequenceWithTensor,        // tp > 1 comes with sequence parallelism
  kShardingWithContext,       // cp > 1 comes with shared state
  kShardingWithReplicas,      // so do several replicas beside tp or pp
  kShardingWithShortFloats,   // and 16 or 8 bits beside tp or pp
  kWholeGradientsInPipeline,  // stages do not share gradients
  kEnoughMicrobatches,        // without virtual stages as many as stages, or more
  kOptimizerInPipeline,       // nor parameters: of state the optimizer's alone
  kShardingWithBf16,          // several replicas in bf16 share the optimizer's state
  kWholeParts,                // tp and twice cp divide the sequence together
  kAlikeHosts                 // as many ranks on every host (plan::ranksPerHost)
};

// What Trireme's own programs can do, and what they train in (expand::checkBuildable).
std::vector<StackChoice> ownChoices();
std::vector<Precision> ownPrecisions();

struct StackProfile {
  std::string name = "trireme";
  std::vector<StackChoice> choices = ownChoices();
  std::vector<Precision> precisions = ownPrecisions();
  std::vector<StackRule> rules;
  // Costs are read off the programs that ir/expand makes. Otherwise they follow `description`.
  bool ownPrograms = true;
  // Unless told otherwise it pads the vocabulary to a multiple of this times tp.
  int64_t vocabMultiple = 128;
  std::string caution;  // what whoever rests on its predictions has to know; empty: nothing
  double computeCapability = 0;  // of the GPUs that it runs on, at least
  StackDescription description;
  StackSettings settings;

  // Of own programs.
  bool flashAttention = true;             // no s x s tensor is kept
  double optimizerBytesPerParameter = 0;  // 0: derived from the precision by ir/expand
  bool overlapPipelineTransfers = true;
  Bytes fixedReserve;    // on every device
  Bytes gpuReserve;      // of a GPU: context, libraries
  Bytes ncclConnection;  // and for each connection to a peer (program::ncclConnections)

  Sources sources;  // of every number of the file

  bool supports(StackChoice choice) const {
    return std::find(choices.begin(), choices.end(), choice) != choices.end();
  }
  bool operator==(const StackProfile&) const = default;
};

// kInvalidArgument: the stack does not train in the precision, or has no choice of tf32; the
// message names what it trains in, and the nearest of it.
Status checkPrecision(const StackProfile& stack, const TrainingSpec& training);

// What runs train in that do not say: on a host our own programs in fp32; elsewhere bf16, or fp16
// where the stack or the device has no bf16, or else fp32.
Precision usualPrecision(const StackProfile& stack, const DeviceSpec& device);

}  // namespace trireme::spec
