#include "runtime/device/cuda/op_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/program/workspace.h"
#include "runtime/kernels/operands.h"

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;

constexpr int64_t kWarp = 32;
constexpr int64_t kMaxHeadSize = 256;   // kernels/attention.cu
constexpr int64_t kTileRows = 16;       // of a warp: kernels/attention_tiles.cu
constexpr int64_t kTileCopyBytes = 16;  // kernels/tiles_device.h
constexpr int32_t kBlockWarps = 32;     // of a block that sums columns
constexpr int64_t kGradColumns = 256;   // kernels/embedding.cu
static_assert(kMaxRanges == program::kSumRanges);

// What a kernel has one thread for, or one warp ("Rows", "Pieces"), or one thread block
// ("Blocks", "Tiles").
enum class Work {
  kElements,
  kPairs,
  kPositions,
  kTokens,
  kTokenRows,
  kTokenPieces,
  kTableRows,
  kColumnBlocks,
  kTokenBlocks,
  kOneBlock,
  kQueryRows,
  kKeyRows,
  kQueryTiles,
  kKeyTiles
};

struct KernelUse {
  std::string_view name;  // without its type
  Work work;
};

// Types of inputs and outputs: t activations, s state, i ids, d f64.
struct OpEntry {
  OpKind kind;
  std::string_view signature;
  std::array<KernelUse, 2> kernels;  // in order; a second without a name is none
};

constexpr std::array kEntries = std::to_array<OpEntry>({
    {OpKind::kEmbedding, "itt", {{{"embedding", Work::kElements}}}},
    {OpKind::kAddPosition, "ttt", {{{"add_position", Work::kElements}}}},
    {OpKind::kDropout, "tt", {{{"dropout", Work::kElements}}}},
    {OpKind::kLayerNorm, "ttttss", {{{"layer_norm", Work::kTokenRows}}}},
    {OpKind::kRmsNorm, "ttts", {{{"rms_norm", Work::kTokenRows}}}},
    {OpKind::kBiasAdd, "ttt", {{{"bias_add", Work::kElements}}}},
    {OpKind::kGelu, "tt", {{{"gelu", Work::kElements}}}},
    {OpKind::kSwiGlu, "tt", {{{"swiglu", Work::kElements}}}},
    {OpKind::kRotary, "tt", {{{"rotary", Work::kPairs}}}},
    {OpKind::kAttention, "tts", {{{"attention", Work::kQueryRows}}}},
    {OpKind::kAdd, "ttt", {{{"add", Work::kElements}}}},
    {OpKind::kLossMax, "ts", {{{"loss_max", Work::kTokenBlocks}}}},
    {OpKind::kLossTarget, "tsis", {{{"loss_target", Work::kTokens}}}},
    {OpKind::kLossSumExp, "tss", {{{"loss_sum_exp", Work::kTokenBlocks}}}},
    {OpKind::kTokenLoss, "ssd", {{{"token_loss", Work::kOneBlock}}}},
    {OpKind::kEmbeddingGrad, "its", {{{"embedding_grad", Work::kTableRows}}}},
    {OpKind::kPositionGrad, "ts", {{{"position_grad", Work::kPositions}}}},
    {OpKind::kLayerNormGrad,
     "ttssttss",
     {{{"layer_norm_grad_columns", Work::kColumnBlocks}, {"layer_norm_grad", Work::kTokenRows}}}},
    {OpKind::kRmsNormGrad,
     "ttstts",
     {{{"rms_norm_grad_columns", Work::kColumnBlocks}, {"rms_norm_grad", Work::kTokenRows}}}},
    {OpKind::kBiasGrad, "ts", {{{"bias_grad", Work::kColumnBlocks}}}},
    {OpKind::kGeluGrad, "ttt", {{{"gelu_grad", Work::kElements}}}},
    {OpKind::kSwiGluGrad, "ttt", {{{"swiglu_grad", Work::kElements}}}},
    {OpKind::kRotaryGrad, "tt", {{{"rotary", Work::kPairs}}}},
    {OpKind::kAttentionGrad,
     "ttstt",
     {{{"attention_grad_query", Work::kQueryRows}, {"attention_grad_key", Work::kKeyRows}}}},
    {OpKind::kLossGrad, "tssit", {{{"loss_grad", Work::kTokenPieces}}}},
});

const OpEntry* entryOf(OpKind kind) {
  for (const OpEntry& entry : kEntries)
    if (entry.kind == kind) return &entry;
  return nullptr;
}

// Warps of a block of attention on tensor cores; 0: no such kernels.
constexpr int32_t tileWarps(int64_t headSize) {
  if (headSize == 64) return 6;
  return headSize == 96 || headSize == 128 ? 8 : 0;
}
bool isTiles(Work work) { return work == Work::kQueryTiles || work == Work::kKeyTiles; }

int64_t tileBlocks(Work work, const OpArgs& a) {
  const int64_t rows = kTileRows * tileWarps(a.headSize);
  const int64_t heads = a.groups * (work == Work::kQueryTiles ? a.headsPerGroup : 1);
  return a.batch * heads * ((a.sequence + rows - 1) / rows);
}

// Of a block that reduces a row. Short rows have fewer, so that more rows are under way.
int32_t rowWarps(int64_t columns) {
  constexpr int64_t kLaneColumns = 16;
  constexpr int32_t kMaxWarps = 32, kMinWarps = 4;
  int32_t warps = kMaxWarps;
  while (warps > kMinWarps && warps * kWarp * kLaneColumns > columns) warps /= 2;
  return warps;
}

int64_t blocksFor(Work work, const OpArgs& a) {
  if (work == Work::kColumnBlocks) return (a.width + kWarp - 1) / kWarp;
  if (work == Work::kTokenBlocks) return a.tokens;
  if (isTiles(work)) return tileBlocks(work, a);
  return work == Work::kOneBlock ? 1 : 0;
}
int32_t warpsFor(Work work, const OpArgs& a) {
  if (work == Work::kTokenBlocks) return rowWarps(a.logicalColumns);
  if (isTiles(work)) return tileWarps(a.headSize);
  return work == Work::kColumnBlocks || work == Work::kOneBlock ? kBlockWarps : 0;
}

int64_t threadsFor(Work work, const OpArgs& a) {
  switch (work) {
    case Work::kElements:
      return a.tokens * a.width;
    case Work::kPairs:
      return a.tokens * a.width / 2;
    case Work::kPositions:
      return a.tokens / a.batch * a.width;
    case Work::kTokens:
      return a.tokens;
    case Work::kTokenRows:
      return a.tokens * kWarp;
    case Work::kTokenPieces:
      return a.tokens * ((a.width + kLossGradColumns - 1) / kLossGradColumns) * kWarp;
    case Work::kTableRows:
      return a.tokens * ((a.width + kGradColumns - 1) / kGradColumns) * kWarp;
    case Work::kQueryRows:
      return a.batch * a.groups * a.headsPerGroup * a.sequence * kWarp;
    case Work::kKeyRows:
      return a.batch * a.groups * a.sequence * kWarp;
    case Work::kQueryTiles:
    case Work::kKeyTiles:
    case Work::kColumnBlocks:
    case Work::kTokenBlocks:
    case Work::kOneBlock:
      break;
  }
  return 0;
}

bool isState(DType type, DType activation) {
  return type == (activation == DType::kF64 ? DType::kF64 : DType::kF32);
}

// The activations' type; state alone stands for activations of its own type.
Result<DType> activationType(const KernelCallArgs& call, std::string_view signature) {
  const size_t numInputs = call.op->inputs.size();
  const auto typeOf = [&](size_t i) {
    return i < numInputs ? inputOf(call, i).dtype() : outputOf(call, i - numInputs).dtype();
  };
  size_t first = signature.find('t');
  if (first == std::string_view::npos) first = signature.find('s');
  const DType type = typeOf(first);
  bool taken = type == DType::kF64 || type == DType::kF32 || byteSize(type) == 2;
  for (size_t i = 0; i < signature.size(); ++i) {
    const DType found = typeOf(i);
    switch (signature[i]) {
      case 't':
        taken = taken && found == type;
        break;
      case 's':
        taken = taken && isState(found, type);
        break;
      default:
        taken = taken && found == (signature[i] == 'i' ? DType::kI32 : DType::kF64);
    }
  }
  if (taken) return type;
  return Error(invalidArgument(
      fmt::format("{}: no CUDA kernel for these types: activations must be f64 with state in f64, "
                  "or f32, bf16 or f16 with state in f32",
                  program::opName(call.op->kind))));
}

// The columns of a token that the op's kernels count.
int64_t widthOf(const KernelCallArgs& call) {
  const Tensor first = inputOf(call, 0);
  switch (call.op->kind) {
    case OpKind::kEmbedding:
      return inputOf(call, 1).dim(1);
    case OpKind::kEmbeddingGrad:
      return inputOf(call, 1).width();
    case OpKind::kSwiGlu:
    case OpKind::kSwiGluGrad:
      return first.dim(3);
    default:
      return first.width();
  }
}

bool hasHeads(OpKind kind) {
  return kind == OpKind::kRotary || kind == OpKind::kRotaryGrad || kind == OpKind::kAttention ||
         kind == OpKind::kAttentionGrad;
}

void setHeads(const KernelCallArgs& call, OpArgs& a) {
  const AttentionShape shape = attentionShapeOf(call.op->attributes, inputOf(call, 0));
  a.sequence = shape.sequence;
  a.groups = shape.groups;
  a.headsPerGroup = shape.headsPerGroup;
  a.headSize = shape.headSize;
  a.theta = call.op->attributes.ropeTheta;
  a.ropeScaling = call.op->attributes.ropeScaling;
  a.direction = call.op->kind == OpKind::kRotaryGrad ? -1 : 1;
  a.firstColumn = firstOfWidth(call, shape.groups * shape.headsPerGroup);
}

OpArgs argsOf(const KernelCallArgs& call) {
  const program::OpAttributes& attributes = call.op->attributes;
  const Tensor first = inputOf(call, 0);
  OpArgs a{};
  a.tokens = first.tokens();
  a.rangeTokens = program::sumRangeTokens(a.tokens);
  a.batch = first.dim(1);
  a.width = widthOf(call);
  a.firstPosition = firstPosition(call, first.dim(0));
  a.firstColumn = firstOfWidth(call, a.width);
  if (call.op->kind == OpKind::kEmbedding || call.op->kind == OpKind::kEmbeddingGrad) {
    const Tensor table = call.op->kind == OpKind::kEmbedding ? inputOf(call, 1) : outputOf(call, 0);
    a.rows = table.dim(0);
    a.firstColumn = firstOfWidth(call, a.rows);
  }
  if (hasHeads(call.op->kind)) setHeads(call, a);
  if (attributes.logicalVocab > 0) a.logicalColumns = localLogicalColumns(call, a.width);
  a.epsilon = attributes.epsilon;
  a.scale = attributes.scale;
  if (attributes.probability > 0) {
    a.keepScale = 1 / (1 - attributes.probability);
    a.dropThreshold = dropoutThreshold(attributes.probability);
  } else {
    a.keepScale = call.op->kind == OpKind::kDropout ? 1 : 0;
  }
  return a;
}

struct TypedEntry {
  const OpEntry* entry = nullptr;
  DType type = DType::kF32;  // of the activations
};

Result<TypedEntry> entryFor(const KernelCallArgs& call) {
  const program::SegmentOp& op = *call.op;
  const OpEntry* entry = entryOf(op.kind);
  if (entry == nullptr)
    return Error(internalError(fmt::format("no CUDA kernel for {}", program::opName(op.kind))));
  TRIREME_RETURN_IF_ERROR(checkOperands(call));
  TRIREME_ASSIGN_OR_RETURN(const DType type, activationType(call, entry->signature));
  if (hasHeads(op.kind) && op.attributes.headSize > kMaxHeadSize)
    return Error(invalidArgument(fmt::format("{}: heads of {}; the CUDA kernels take up to {}",
                                             program::opName(op.kind), op.attributes.headSize,
                                             kMaxHeadSize)));
  return TypedEntry{entry, type};
}

bool isAttention(OpKind kind) {
  return kind == OpKind::kAttention || kind == OpKind::kAttentionGrad;
}

// Attention whose kernels use tensor cores. They count queries of all heads in 32 bits, and numbers
// of one position.
bool onTiles(OpKind kind, DType type, const OpArgs& a) {
  constexpr int64_t kMost = int64_t{1} << 31;
  return isAttention(kind) && byteSize(type) == 2 && tileWarps(a.headSize) > 0 &&
         a.tokens * a.groups * a.headsPerGroup < kMost &&
         a.batch * a.groups * (a.headsPerGroup + 2) * a.headSize < kMost;
}

// The kernel and what it is launched for.
struct TypedUse {
  std::string name;
  Work work;
};
TypedUse typedUse(const KernelUse& use, OpKind kind, DType type, const OpArgs& a) {
  if (!onTiles(kind, type, a)) return {fmt::format("{}_{}", use.name, dtypeName(type)), use.work};
  return {fmt::format("{}{}_tiles_{}_{}", use.name, a.keepScale == 0 ? "" : "_dropout", a.headSize,
                      dtypeName(type)),
          use.work == Work::kQueryRows ? Work::kQueryTiles : Work::kKeyTiles};
}

// Operands that come to shared memory as tiles: all activations, though of some none does.
std::vector<int32_t> tilesIn(std::vector<int32_t> operands,
                             const std::vector<program::OperandType>& types) {
  std::erase_if(operands,
                [&](int32_t i) { return byteSize(types[static_cast<size_t>(i)].dtype) != 2; });
  return operands;
}

Status placeDeltas(const KernelCallArgs& call, const Workspace& workspace, OpArgs& a) {
  const int64_t needed = program::attentionDeltaBytes(*inputOf(call, 2).type);
  if (workspace.bytes < needed)
    return invalidArgument(fmt::format(
        "{}: needs a workspace of {} bytes and has {}; compile the bundle with this version",
        program::opName(call.op->kind), needed, workspace.bytes));
  a.deltas = static_cast<float*>(workspace.data);
  return {};
}

}  // namespace

Status checkOp(const program::SegmentOp& op, const std::vector<program::OperandType>& types) {
  if (isMatmul(op.kind)) return checkMatmul(op, types);
  const std::vector<void*> none(types.size(), nullptr);
  const program::KernelContext context;
  const Result<TypedEntry> entry =
      entryFor({&op, types.data(), none.data(), &context, nullptr, nullptr});
  return entry.has_value() ? Status() : entry.error();
}

bool drawsRandom(const program::SegmentOp& op) { return op.attributes.probability > 0; }

Result<OpLaunch> OpLaunch::create(const Gpu& gpu, const program::SegmentOp& op,
                                  const std::vector<program::OperandType>& types, int32_t tpIndex,
                                  const OpPlace& place) {
  const std::vector<void*> none(types.size(), nullptr);
  program::KernelContext context;
  context.tpIndex = static_cast<uint64_t>(tpIndex);
  const KernelCallArgs call{&op, types.data(), none.data(), &context, nullptr, nullptr};
  TRIREME_ASSIGN_OR_RETURN(const TypedEntry entry, entryFor(call));
  OpLaunch launch;
  launch.args_ = argsOf(call);
  launch.args_.lossScaling = reinterpret_cast<const double*>(place.lossScaling);
  if (op.kind == OpKind::kAttentionGrad && onTiles(op.kind, entry.type, launch.args_))
    TRIREME_RETURN_IF_ERROR(placeDeltas(call, place.workspace, launch.args_));
  launch.random_ = op.attributes.stream;
  launch.draws_ = drawsRandom(op);
  launch.operands_ = op.inputs;
  launch.operands_.insert(launch.operands_.end(), op.outputs.begin(), op.outputs.end());
  if (onTiles(op.kind, entry.type, launch.args_))
    launch.aligned_ = tilesIn(launch.operands_, types);
  for (const KernelUse& use : entry.entry->kernels) {
    if (use.name.empty()) continue;
    const TypedUse typed = typedUse(use, op.kind, entry.type, launch.args_);
    Kernel kernel;
    TRIREME_ASSIGN_OR_RETURN(kernel.function, gpu.kernel(typed.name));
    kernel.threads = threadsFor(typed.work, launch.args_);
    kernel.blocks = blocksFor(typed.work, launch.args_);
    kernel.warps = warpsFor(typed.work, launch.args_);
    launch.kernels_.push_back(kernel);
  }
  return launch;
}

Result<OpLaunch> OpLaunch::create(const Gpu& gpu, const LossChain& chain,
                                  const std::vector<program::OperandType>& types, int32_t tpIndex) {
  for (const program::SegmentOp* op : {chain.max, chain.target, chain.sumExp})
    if (op != nullptr) TRIREME_RETURN_IF_ERROR(checkOp(*op, types));
  TRIREME_ASSIGN_OR_RETURN(OpLaunch launch, create(gpu, *chain.target, types, tpIndex));
  launch.operands_.push_back(chain.sumExp->outputs[0]);
  const DType type = types[static_cast<size_t>(chain.target->inputs[0])].dtype;
  Kernel kernel;
  TRIREME_ASSIGN_OR_RETURN(
      kernel.function,
      gpu.kernel(fmt::format("{}_{}", chain.max ? "loss_forward" : "loss_sums", dtypeName(type))));
  kernel.blocks = blocksFor(Work::kTokenBlocks, launch.args_);
  kernel.warps = warpsFor(Work::kTokenBlocks, launch.args_);
  launch.kernels_ = {kernel};
  return launch;
}

Status OpLaunch::checkAlignment(void* const* operands) const {
  for (const int32_t operand : aligned_)
    if (reinterpret_cast<uintptr_t>(operands[operand]) % kTileCopyBytes != 0)
      return internalError(
          fmt::format("operand {} begins at {}, no multiple of {} bytes, of which its kernels make "
                      "one copy",
                      operand, operands[operand], kTileCopyBytes));
  return {};
}

Status OpLaunch::run(const program::KernelContext& context, void* const* operands,
                     KernelSink& sink) const {
  OpArgs args = args_;
  for (size_t i = 0; i < operands_.size(); ++i) args.operands[i] = operands[operands_[i]];
  const RngKey key = context.keys[static_cast<size_t>(random_)];
  args.keyLow = key.low;
  args.keyHigh = key.high;
  args.firstSample = context.firstSample;
  for (const Kernel& kernel : kernels_)
    TRIREME_RETURN_IF_ERROR(sink.put(
        kernel.warps > 0 ? launchOfBlocks(kernel.function, &args, kernel.blocks, kernel.warps)
                         : launchOf(kernel.function, &args, kernel.threads)));
  return {};
}

}  // namespace trireme::runtime::cuda
