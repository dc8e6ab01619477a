// A plan is a value: every choice that a training run makes, and no others. The planner writes it,
// a user may write it by hand; nothing downstream chooses anything.
//
// It can say what Megatron-LM, DeepSpeed, FSDP and their relatives run, so that one cost model
// prices them all. What Trireme itself compiles is less: expand::checkBuildable says how much.
//
// Ranks are laid out in one of Megatron-Core's two orders (RankOrder; sharding.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/training_spec.h"

namespace trireme::plan {

enum class ScheduleKind : uint8_t { kGpipe, k1F1B, kInterleaved, kZeroBubbleH1, kZeroBubbleH2 };
enum class Recompute : uint8_t { kNone, kSelective, kFull };
enum class StateSharding : uint8_t { kNone, kOptimizer, kGradients, kParameters };
// Which ranks are neighbours, innermost to outermost, dp being dp_shard inside dp_replicate: the
// replicas of a stage, or the stages of a replica (Megatron-Core's --use-tp-pp-dp-mapping). Ranks
// fill the tiers of a cluster in order, so that this decides which of the two share a node.
enum class RankOrder : uint8_t { kTpCpDpPp, kTpCpPpDp };

// Layers [first, first + count) of the model.
struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const LayerRange&) const = default;
};

struct Plan {
  std::string model;  // name of the model it was made for
  // fingerprintOf(ModelSpec): a plan for another model is refused. 0, of plans by hand: for any of
  // that name.
  uint64_t fingerprint = 0;
  std::string stack = "trireme";  // name of the StackProfile it was made for; changes no number
  spec::TrainingSpec training;

  int64_t tp = 1, pp = 1, cp = 1, ep = 1;
  int64_t dpReplicate = 1, dpShard = 1;  // both above 1: HSDP
  int64_t virtualStages = 1;             // chunks per pipeline rank
  int64_t microbatchSize = 1;            // sequences
  ScheduleKind schedule = ScheduleKind::k1F1B;
  Recompute recompute = Recompute::kNone;
  // kFull: only the first so many layers of every virtual stage are recomputed (Megatron's
  // --recompute-num-layers by blocks), the others keep everything; 0: all layers.
  int64_t recomputeLayers = 0;
  // What the ranks of dpShard x cp share out: the ranks of one replica's context hold the same
  // parameters, so they take their part as Megatron-Core's and torchtitan's do.
  StateSharding stateSharding = StateSharding::kNone;
  bool sequenceParallel = false;
  bool scatterGather = false;  // send 1/tp of a replicated stage border, all-gather behind it
  // Trireme's own programs: reductions run beside computation, on streams of their own. Over dp,
  // those of a layer's gradients beside the last backward of the layers below it; over tp, those of
  // activations' gradients beside the gradients of weights. What other stacks overlap is said by
  // their profiles.
  bool overlapReductions = false;
  RankOrder rankOrder = RankOrder::kTpCpDpPp;
  // Of a host of the cluster that it was made for, which whoever launches it has to know, or as
  // many of those as it uses where that is the same part of every host; 0: not said. Where ranks
  // then are alike on all hosts (ranksPerHost in choices.h), that is how they are priced.
  int64_t devicesPerHost = 0;
  int64_t vocabMultiple = 128;  // the vocabulary is padded to a multiple of vocabMultiple * tp
  // layers[stage][chunk]: virtual stage chunk * pp + stage. In virtual-stage order the ranges
  // follow each other and cover all layers. May be uneven.
  std::vector<std::vector<LayerRange>> layers;

  int64_t dp() const { return dpReplicate * dpShard; }
  int64_t numRanks() const { return tp * pp * cp * dp(); }
  // Ranks that share out what stateSharding says; 1 if it is none.
  int64_t stateShards() const { return stateSharding == StateSharding::kNone ? 1 : dpShard * cp; }
  int64_t numMicrobatches() const { return training.globalBatchSize / (dp() * microbatchSize); }
  bool operator==(const Plan&) const = default;
};

// What the fingerprint is the hash of: every field but the name, with blanks between, in the order
// of ModelSpec.
std::string fingerprintText(const spec::ModelSpec& model);
uint64_t fingerprintOf(const spec::ModelSpec& model);
int64_t paddedVocab(const Plan& plan, const spec::ModelSpec& model);

// The even split of `numLayers` over virtual stages; where it does not divide, the first virtual
// stages get one more. With one or two virtual stages more than layers the last has none, or it and
// the first. Requires pp * virtualStages <= numLayers + 2, of one stage <= numLayers.
std::vector<std::vector<LayerRange>> evenLayers(int64_t numLayers, int64_t pp,
                                                int64_t virtualStages);

// The rules that every legal plan obeys. The message starts with the label, says what was needed
// and what is there, and names the nearest legal value. Requires a verified model
// (spec::verifyModel). Errors: kInvalidArgument.
//
// (P1)  degrees, microbatch size, virtual stages and vocabMultiple are at least 1; ranks, padded
//       rows and tasks per rank fit in 31 bits
// (P2)  the plan was made for this model (fingerprint, or without one the name)
// (P3)  the global batch is a multiple of dp * microbatchSize
// (P4)  tp divides the key/value heads
// (P5)  tp divides the ffn size
// (P6)  virtualStages > 1 needs the interleaved schedule and pp > 1, and interleaved needs
//       virtualStages > 1
// (P7)  interleaved: the microbatches per replica are a multiple of pp
// (P8)  layers: one list per stage, one range per chunk, contiguous in virtual-stage order,
//       covering the model, none empty but the first and the last, which hold embedding and head
// (P9)  sequence parallel needs tp > 1 and tp to divide a rank's sequence, sequence / cp
// (P10) scatter-gather needs tp > 1 and pp > 1, excludes sequence parallel (already sharded), and
//       tp divides microbatchSize * sequence / cp * hidden
// (P11) state sharding needs dpShard * cp > 1, and dpShard > 1 state sharding (replicas that share
//       nothing are dpReplicate)
// (P12) ep is 1: models have no experts
// (P13) the training settings are valid for the model (verifyTraining)
// (P14) recomputeLayers is 0, or needs recompute full and is at most the layers of the longest
//       virtual stage
// (P15) cp > 1: the sequence length is a multiple of 2 cp (a rank takes one part from the front and
//       its mirror image from the back, so that causal attention is the same work for all)
// (P16) the stack has a name without control characters
// (P17) overlapReductions needs dp > 1 or tp > 1
// (P18) rankOrder tp-cp-pp-dp needs pp > 1 and dp > 1: otherwise both orders are the same
Status verifyPlan(const Plan& plan, const spec::ModelSpec& model);

// Versioned YAML, with the training settings inside; round-trips exactly.
std::string printPlan(const Plan& plan);
// kInvalidArgument with file, line, column; unknown keys and newer versions are refused.
Result<Plan> parsePlan(const std::string& text, const std::string& name);
Result<Plan> loadPlan(const std::string& path);

std::string_view scheduleName(ScheduleKind kind);  // gpipe, 1f1b, interleaved, zb-h1, zb-h2
// Whether gradients of weights are made by a task of their own, after those of activations.
constexpr bool splitsBackward(ScheduleKind kind) {
  return kind == ScheduleKind::kZeroBubbleH1 || kind == ScheduleKind::kZeroBubbleH2;
}
std::string_view recomputeName(Recompute recompute);     // none, selective, full
std::string_view stateShardingName(StateSharding kind);  // none, optimizer, gradients, parameters
std::string_view rankOrderName(RankOrder order);         // tp-cp-dp-pp, tp-cp-pp-dp

}  // namespace trireme::plan
