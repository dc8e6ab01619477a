// The beginning and the end of a training step.
#include "ir/expand/role_builder.h"

namespace trireme::expand {

using program::Body;
using program::GroupKind;
using program::Instruction;
using program::InstructionKind;

namespace {

void emit(Body& body, InstructionKind kind, GroupKind group, std::vector<int32_t> buffers,
          int32_t bucket = -1) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.group = group;
  instruction.buffers = std::move(buffers);
  instruction.bucket = bucket;
  body.instructions.push_back(std::move(instruction));
}

}  // namespace

// Zeroes what accumulates over the microbatches.
Body RoleBuilder::begin() {
  Body body;
  body.name = "begin";
  for (const program::Bucket& bucket : role_.buckets)
    emit(body, InstructionKind::kZero, GroupKind::kTp, {bucket.gradient});
  if (role_.loss >= 0) emit(body, InstructionKind::kZero, GroupKind::kTp, {role_.loss});
  return body;
}

// This data-parallel member's part of a flat buffer.
int32_t RoleBuilder::shardView(int32_t buffer) {
  program::Buffer view = role_.buffers[static_cast<size_t>(buffer)];
  view.name += ".shard";
  view.elements /= plan_.dp();
  view.dpStride = view.bytes();
  return addBuffer(std::move(view));
}

// Sums a bucket's gradients over everyone that holds a part: data parallel, then tensor (only under
// sequence parallelism, where each rank saw its own tokens), then the two uses of a tied table.
void RoleBuilder::emitReduction(Body& body, int32_t index) {
  const program::Bucket bucket = role_.buckets[static_cast<size_t>(index)];
  int32_t gradient = bucket.gradient;
  if (bucket.sharded) {
    gradient = shardView(bucket.gradient);
    emit(body, InstructionKind::kReduceScatter, GroupKind::kDp, {bucket.gradient, gradient});
  } else if (plan_.dp() > 1) {
    emit(body, InstructionKind::kAllReduce, GroupKind::kDp, {gradient});
  }
  if (bucketPartial_[static_cast<size_t>(index)])
    emit(body, InstructionKind::kAllReduce, GroupKind::kTp, {gradient});
  if (classOfBucket_[static_cast<size_t>(index)] == Class::kTied && plan_.pp > 1)
    emit(body, InstructionKind::kAllReduce, GroupKind::kEmbedding, {gradient});
}

Body RoleBuilder::step() {
  Body body;
  body.name = "step";
  const auto buckets = static_cast<int32_t>(role_.buckets.size());
  // A tied table's sum waits for the other stage that has it: what needs no other stage goes first.
  for (const bool isTied : {false, true})
    for (int32_t b = 0; b < buckets; ++b) {
      const Class c = classOfBucket_[static_cast<size_t>(b)];
      if ((c == Class::kTied) == isTied && !isReducedEarly(c)) emitReduction(body, b);
    }
  if (role_.loss >= 0 && plan_.dp() > 1)
    emit(body, InstructionKind::kAllReduce, GroupKind::kDp, {role_.loss});
  if (reduced_.base >= 0) {
    emit(body, InstructionKind::kWait, GroupKind::kTp, {});
    body.instructions.back().event = reduced_;
  }
  emit(body, InstructionKind::kZero, GroupKind::kTp, {role_.squares});
  for (int32_t b = 0; b < buckets; ++b)
    emit(body, InstructionKind::kSumSquares, GroupKind::kTp, {role_.squares}, b);
  if (plan_.tp * plan_.pp > 1 || shardsState())
    emit(body, InstructionKind::kAllReduce, shardsState() ? GroupKind::kWorld : GroupKind::kModel,
         {role_.squares});
  for (int32_t b = 0; b < buckets; ++b)
    emit(body, InstructionKind::kAdamW, GroupKind::kTp, {role_.squares}, b);
  if (role_.lossScaling >= 0)
    emit(body, InstructionKind::kUpdateLossScale, GroupKind::kTp,
         {role_.squares, role_.lossScaling});
  for (int32_t b = 0; b < buckets; ++b)
    if (role_.buckets[static_cast<size_t>(b)].sharded) emitParameterGather(body, b);
  return body;
}

// The parameters of all members, piece by piece.
void RoleBuilder::emitParameterGather(Body& body, int32_t index) {
  const program::Bucket bucket = role_.buckets[static_cast<size_t>(index)];
  int32_t whole = bucket.parameter;
  if (bucket.pieces > 1) {
    emit(body, InstructionKind::kRepeat, GroupKind::kTp, {});
    body.instructions.back().count = bucket.pieces;
    body.instructions.back().length = 1;
    whole = addBuffer(pieceOf(bucket.parameter, bucket.pieces));
  }
  emit(body, InstructionKind::kAllGather, GroupKind::kDp, {shardView(whole), whole});
}

}  // namespace trireme::expand
