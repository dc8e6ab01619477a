// One explicit program per rank: what the simulator plays, the verifier proves and the runtime
// executes. Ranks of the same role share one program; everything but the task list is independent
// of the number of microbatches, of the layers per stage (Repeat) and of the ranks per role.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/program/op.h"

namespace trireme::program {

// A place in the arena. Address of an access, in bytes:
//   offset + layer * layerStride + slot * slotStride + tpIndex * tpStride + dpIndex * dpStride
// layer: index of the enclosing Repeat (0 outside); slot: of the task.
struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  int64_t elements = 0;
  int64_t offset = 0;
  int64_t layerStride = 0;
  int64_t slotStride = 0;
  int64_t tpStride = 0;
  int64_t dpStride = 0;
  int64_t bytes() const { return elements * byteSize(dtype); }
};

// Instructions of one stream execute in order; streams run side by side and meet at events.
enum class Stream : uint8_t {
  kCompute,  // and collectives that nothing overlaps
  kRecvForward,
  kSendForward,
  kRecvBackward,
  kSendBackward,
  kDpReduce,  // reductions over the data axis, beside the backward of other layers
  kTpReduce,  // and over the tensor axis, with gathers, beside the gradients of one product
};
inline constexpr int kNumStreams = 7;

enum class GroupKind : uint8_t {
  kTp,         // same (pp, dp)
  kDp,         // same (pp, tp)
  kPp,         // same (tp, dp)
  kEmbedding,  // first and last of the kPp group (one member if p = 1)
  kModel,      // same dp
  kWorld,
};
inline constexpr int kNumGroupKinds = 6;

enum class ReduceOp : uint8_t { kSum, kMax };

enum class InstructionKind : uint8_t {
  kCompute,        // segment on `buffers` (one per operand)
  kSend,           // buffers[0] to the peer; the receiver's Recv has the same tag and bytes
  kRecv,           // into buffers[0]
  kAllReduce,      // buffers[0] in place, members in group order
  kReduceScatter,  // buffers[0] (all) -> buffers[1] (this member's n-th); may overlap in place
  kAllGather,      // buffers[0] (this member's n-th) -> buffers[1] (all); may overlap in place
  kLoadBatch,      // buffers[0] = tokens[s,b], buffers[1] = labels[s,b] (i32) of the microbatch
  kZero,           // buffers[0] = 0
  kSumSquares,     // squares of bucket's gradients per logical parameter -> buffers[0] (f64)
  kAdamW,          // optimizer step of bucket; buffers[0] = summed squares of all parameters (f64)
  kRepeat,         // the next `length` instructions, `count` times; layer = 0.. or reversed
  kWait,           // `stream` waits for the latest issued signal of `event`; none issued: no wait
  kUpdateLossScale,  // after the last kAdamW; buffers[0] = squares (f64), [1] = Role::lossScaling
};
inline constexpr int kNumInstructionKinds = static_cast<int>(InstructionKind::kUpdateLossScale) + 1;

std::string_view instructionName(InstructionKind kind);

// An event of the role; the one of a task is base + slot if perSlot.
struct EventRef {
  int32_t base = -1;  // -1: none
  bool perSlot = false;
  bool operator==(const EventRef&) const = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::kCompute;
  Stream stream = Stream::kCompute;
  int32_t segment = -1;              // kCompute: index into Program::segments
  std::vector<int32_t> buffers;      // indices into Role::buffers
  GroupKind group = GroupKind::kTp;  // collectives
  ReduceOp reduce = ReduceOp::kSum;
  int32_t peerStage = -1;     // kSend, kRecv: pipeline rank of the peer (same tp, dp)
  int32_t virtualStage = -1;  // kSend, kRecv: of the *producer*; part of the tag
  int32_t bucket = -1;        // kSumSquares, kAdamW: index into Role::buckets
  int32_t count = 0;          // kRepeat
  int32_t length = 0;
  bool reversed = false;
  EventRef event;  // kWait: awaited; otherwise signalled on completion (optional)
  bool operator==(const Instruction&) const = default;
};

// kWeights: gradients of weights alone, of microbatches whose kBackward made only those of
// activations.
enum class Direction : uint8_t { kForward, kBackward, kStep, kWeights };

char directionLetter(Direction direction);  // F, B, S, W

// The code of one chunk in one direction, or of the step.
struct Body {
  std::string name;
  std::vector<Instruction> instructions;
};

// One call of a body. Tag of its messages: (direction, producer's virtual stage, microbatch).
struct TaskRecord {
  int32_t body = 0;
  int32_t chunk = 0;       // index into Role::chunks; -1 for the step
  int32_t microbatch = 0;  // within the data-parallel replica
  int32_t slot = 0;        // activation slot of the chunk
  Direction direction = Direction::kForward;
  bool operator==(const TaskRecord&) const = default;
};

struct Chunk {
  int32_t virtualStage = 0;  // chunk index * p + pipeline rank
  int32_t firstLayer = 0;    // logical
  int32_t numLayers = 0;
  int32_t numSlots = 0;  // microbatches in flight at the peak
  bool hasEmbedding = false;
  bool hasHead = false;
};

// A flat run of parameters that are normed, stepped and sharded together. It is reduced as a whole,
// or in `pieces` equal runs, one after the other, as soon as their gradients are complete. With
// sharded optimizer state, member j of the dp group owns the j-th of d equal parts of each piece;
// master and moments hold these one behind the other.
struct Bucket {
  std::string name;
  int64_t elements = 0;  // per rank, padded to a multiple of pieces * d when sharded
  bool decay = false;    // weight decay applies
  bool sharded = false;  // optimizer state (and the reduced gradient) over dp
  // Indices into Role::buffers; the last three hold elements / d when sharded.
  int32_t parameter = -1;  // compute dtype
  int32_t gradient = -1;   // state dtype
  int32_t master = -1;     // state dtype; -1: `parameter` is its own master (same dtype)
  int32_t moment1 = -1;
  int32_t moment2 = -1;
  int32_t pieces = 1;
};

// What Role::lossScaling holds, as f64[4]; the same on all ranks, since all see the same squares.
// kLossGrad multiplies by the scale. If the global norm is not finite kAdamW does nothing,
// otherwise it divides by the scale and takes step t = takenSteps + 1. Then kUpdateLossScale
//   norm is finite:  ++takenSteps; ++goodSteps, and at the window: scale *= 2, goodSteps = 0
//   otherwise:       ++skippedSteps; scale = max(scale / 2, minimum), goodSteps = 0
// Micikevicius et al., "Mixed precision training", ICLR 2018; numbers as torch.amp.GradScaler.
struct LossScaling {
  double scale = 1;
  double goodSteps = 0;  // in a row, since the scale changed
  double takenSteps = 0;
  double skippedSteps = 0;
  bool operator==(const LossScaling&) const = default;
};
inline constexpr int64_t kLossScalingElements = sizeof(LossScaling) / sizeof(double);

enum class InitKind : uint8_t { kZeros, kOnes, kNormal };

// A row of the state table: one logical parameter, or the same parameter of consecutive layers.
struct Parameter {
  std::string name;           // "layers.{}.attn.qkv.weight": {} is the logical layer
  std::vector<int64_t> dims;  // global, logical (unpadded)
  std::vector<int64_t> paddedDims;
  int32_t tpDim = -1;  // dim split over tp (contiguous equal parts); -1: replicated
  int32_t bucket = 0;
  int64_t offset = 0;       // elements, within the bucket, of the first layer
  int64_t layerStride = 0;  // elements
  int32_t firstLayer = 0;   // logical
  int32_t numLayers = 0;    // 0: not of a layer
  InitKind init = InitKind::kZeros;
  double initStd = 0;
  // Logical index: of the first layer here, and the step to the next layer. Also the tensor number
  // of the initial draw: randomNormal(makeRngKey(seed, 0, 0, kInit), logicalIndex, global element).
  int32_t logicalIndex = 0;
  int32_t logicalStride = 0;
  bool copy = false;  // the last stage's copy of a tied weight: not counted, not saved
  int64_t localElements(int64_t tp) const;
};

// Everything that ranks of one pipeline position share.
struct Role {
  std::string name;
  int32_t stage = 0;  // pipeline rank
  int64_t arenaBytes = 0;
  int32_t numEvents = 0;
  std::vector<Buffer> buffers;
  std::vector<Chunk> chunks;
  std::vector<Bucket> buckets;
  std::vector<Parameter> parameters;
  std::vector<Body> bodies;
  std::vector<TaskRecord> tasks;  // one training step, in issue order
  // Buffer (f64[1]) on the last stage: sum of token losses; after the step, of the global batch.
  int32_t loss = -1;
  int32_t squares = -1;      // buffer (f64[number of logical parameters])
  int32_t workspace = -1;    // buffer: scratch of library kernels
  int32_t lossScaling = -1;  // buffer: LossScaling, f64[4]; -1: nothing is scaled
};

struct RankInfo {
  int32_t role = 0;
  int32_t tpIndex = 0, dpIndex = 0, ppIndex = 0;
  std::array<int32_t, kNumGroupKinds> group{};  // index into Program::groups, per GroupKind
};

struct Group {
  GroupKind kind = GroupKind::kTp;
  std::vector<int32_t> ranks;  // in reduction order
};

// What a run needs to know beyond the instructions. Numbers as in TrainingSpec.
struct Training {
  uint64_t seed = 0;
  int64_t sequenceLength = 0, globalBatchSize = 0, microbatchSize = 0, numMicrobatches = 0;
  int64_t vocabSize = 0;          // logical: a token at or beyond is refused
  uint64_t modelFingerprint = 0;  // a checkpoint of another model is refused
  double learningRate = 0, minLearningRate = 0;
  int64_t warmupSteps = 0, decaySteps = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0, weightDecay = 0, clipNorm = 0;
  double embeddingDropout = 0, attentionDropout = 0, residualDropout = 0;
  DType computeDType = DType::kF32, stateDType = DType::kF32;
  double initialLossScale = 1, minLossScale = 1;  // of f16
  int64_t lossScaleWindow = 1;                    // steps
  bool scalesLoss() const { return computeDType == DType::kF16; }
};

struct Program {
  std::string model;  // name, for messages
  int32_t tp = 1, pp = 1, dp = 1, virtualStages = 1;
  int64_t numLayers = 0;
  Training training;
  std::vector<Segment> segments;
  std::vector<Role> roles;
  std::vector<RankInfo> ranks;
  std::vector<Group> groups;
  int32_t numRanks() const { return static_cast<int32_t>(ranks.size()); }
};

// First sample (within the global batch) of `microbatch` of data-parallel replica `dpIndex`.
int64_t firstSample(const Training& training, int32_t dpIndex, int32_t microbatch);

// Members of `rank`'s group of `kind`.
const Group& groupOf(const Program& program, int32_t rank, GroupKind kind);
// The rank with pipeline position `stage` and the tp and dp indices of `rank`.
int32_t peerRank(const Program& program, int32_t rank, int32_t stage);

}  // namespace trireme::program
