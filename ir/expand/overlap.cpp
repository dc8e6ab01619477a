// Reductions over the data axis that run beside the last backward. A layer's matrices are a piece
// of their bucket: their gradients are summed while the layers below are computed. Tied tables and
// embeddings are complete only at the end; vectors are too small to gain anything.
#include "ir/expand/role_builder.h"

namespace trireme::expand {

using program::Body;
using program::Buffer;
using program::Instruction;
using program::InstructionKind;
using program::Stream;

bool RoleBuilder::isReducedEarly(Class c) const {
  return c >= Class::kLayerMatrixSplit && c <= Class::kHeadMatrixWhole;
}

// The first of the equal pieces of a flat buffer; the layer moves to the others.
Buffer RoleBuilder::pieceOf(int32_t buffer, int32_t pieces) const {
  Buffer piece = role_.buffers[static_cast<size_t>(buffer)];
  piece.name += ".piece";
  piece.elements /= pieces;
  piece.layerStride = piece.bytes();
  return piece;
}

// What follows on the reductions' stream waits for what was computed so far.
void RoleBuilder::emitReductionWait(Body& body, int32_t chunk) {
  lastComputed(body).event = event(chunk, kComputedBackward);
  emitWait(body, Stream::kDpReduce, chunk, kComputedBackward);
}

void RoleBuilder::emitEarlyReduction(Body& body, int32_t bucket, Buffer piece) {
  const int32_t whole = addBuffer(std::move(piece));
  Instruction reduction;
  reduction.kind = InstructionKind::kAllReduce;
  reduction.stream = Stream::kDpReduce;
  reduction.group = program::GroupKind::kDp;
  reduction.buffers = {whole};
  if (role_.buckets[static_cast<size_t>(bucket)].sharded) {
    reduction.kind = InstructionKind::kReduceScatter;
    reduction.buffers.push_back(shardView(whole));
  }
  reduction.event = reduced_;
  body.instructions.push_back(std::move(reduction));
}

void RoleBuilder::emitLayerReductions(Body& body, int32_t chunk) {
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  emitReductionWait(body, chunk);
  for (int32_t b = 0; b < static_cast<int32_t>(role_.buckets.size()); ++b) {
    const auto c = static_cast<size_t>(classOfBucket_[static_cast<size_t>(b)]);
    if (!isReducedEarly(classOfBucket_[static_cast<size_t>(b)]) || layout.layerElements[c] == 0)
      continue;
    const program::Bucket& bucket = role_.buckets[static_cast<size_t>(b)];
    Buffer piece = pieceOf(bucket.gradient, bucket.pieces);
    piece.offset += layout.layersBegin[c] * byteSize(piece.dtype);
    emitEarlyReduction(body, b, std::move(piece));
  }
}

void RoleBuilder::emitHeadReductions(Body& body, int32_t chunk) {
  bool waits = false;
  for (const Class c : {Class::kHeadMatrixSplit, Class::kHeadMatrixWhole}) {
    const int32_t b = bucketOfClass_[static_cast<size_t>(c)];
    if (b < 0) continue;
    if (!std::exchange(waits, true)) emitReductionWait(body, chunk);
    const program::Bucket& bucket = role_.buckets[static_cast<size_t>(b)];
    emitEarlyReduction(body, b, role_.buffers[static_cast<size_t>(bucket.gradient)]);
  }
}

}  // namespace trireme::expand
