// The instruction sequences of a role.
//
// A slot's messages are ordered by its own events, so that a transfer of one microbatch never waits
// for another's:
//   forward   recv  after the slot's last backward has computed
//             send  after the forward has computed
//   backward  recv  after the slot's previous gradient was sent, and used
//             send  after the backward has computed
// Gradients of weights send and receive nothing. Where they are computed apart, the slot's backward
// has computed when they are done.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/expand/role_builder.h"

namespace trireme::expand {

using program::Body;
using program::Instruction;
using program::InstructionKind;
using program::Stream;

RoleBuilder::RoleBuilder(const ModelCode& model, const plan::Plan& plan, int32_t stage,
                         std::vector<int32_t> slotsPerChunk)
    : model_(model), plan_(plan), stage_(stage), slots_(std::move(slotsPerChunk)) {
  constexpr size_t kBuffersOfChunk = 64;  // and more of some
  chains_.resize(std::bit_ceil(kBuffersOfChunk * slots_.size()));
}

void RoleBuilder::build(bool withBodies) {
  role_.name = fmt::format("stage{}", stage_);
  role_.stage = stage_;
  const auto chunks = static_cast<int32_t>(plan_.virtualStages);
  chunks_.resize(static_cast<size_t>(chunks));
  for (int32_t c = 0; c < chunks; ++c) {
    program::Chunk chunk;
    chunk.virtualStage = virtualStage(c);
    chunk.firstLayer = static_cast<int32_t>(range(c).first);
    chunk.numLayers = static_cast<int32_t>(range(c).count);
    chunk.numSlots = slots_[static_cast<size_t>(c)];
    chunk.hasEmbedding = hasEmbedding(c);
    chunk.hasHead = hasHead(c);
    role_.chunks.push_back(chunk);
  }
  placeParameters();
  if (std::any_of(classOfBucket_.begin(), classOfBucket_.end(),
                  [&](Class c) { return isReducedEarly(c); }))
    reduced_.base = role_.numEvents++;
  if (overlapsTp()) {
    tpReady_.base = role_.numEvents++;
    tpDone_.base = role_.numEvents++;
  }
  const auto scalars = [&](const char* name, int64_t n) {
    program::Buffer buffer;
    buffer.name = name;
    buffer.dtype = DType::kF64;
    buffer.elements = n;
    buffer.offset = take(buffer.bytes());
    use_.other += alignUp(buffer.bytes());
    return addBuffer(std::move(buffer));
  };
  role_.squares = scalars("squares", model_.numLogical(model_.graph->numLayers));
  if (hasHead(chunks - 1)) role_.loss = scalars("loss", 1);
  if (model_.computeDType == DType::kF16)
    role_.lossScaling = scalars("loss_scaling", program::kLossScalingElements);
  allocateChunks();
  allocateScratch();
  if (withBodies) addBodies();
}

program::EventRef RoleBuilder::event(int32_t chunk, ChunkEvent event) const {
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  return {layout.eventBase + event * slots_[static_cast<size_t>(chunk)], true};
}

void RoleBuilder::emitWait(Body& body, Stream stream, int32_t chunk, ChunkEvent awaited) {
  emitWait(body, stream, event(chunk, awaited));
}

void RoleBuilder::emitWait(Body& body, Stream stream, program::EventRef awaited) {
  Instruction wait;
  wait.kind = InstructionKind::kWait;
  wait.stream = stream;
  wait.event = awaited;
  body.instructions.push_back(std::move(wait));
}

// Moves the residual stream (or its gradient) at `offset` of the slot to or from the neighbour.
// Returns the buffer that is on the wire.
int32_t RoleBuilder::emitTransfer(Body& body, bool send, bool backwards, int32_t chunk,
                                  int64_t offset) {
  const auto p = static_cast<int32_t>(plan_.pp);
  const bool toNext = send != backwards;
  Instruction transfer;
  transfer.kind = send ? InstructionKind::kSend : InstructionKind::kRecv;
  transfer.peerStage = toNext ? (stage_ + 1) % p : (stage_ + p - 1) % p;
  const int32_t own = virtualStage(chunk);
  transfer.virtualStage = send ? own : backwards ? own + 1 : own - 1;
  transfer.stream = send ? (backwards ? Stream::kSendBackward : Stream::kSendForward)
                         : (backwards ? Stream::kRecvBackward : Stream::kRecvForward);
  transfer.event = event(chunk, send ? (backwards ? kSentBackward : kSentForward)
                                     : (backwards ? kReceivedBackward : kReceivedForward));
  const char* name = backwards ? "gradient" : send ? "output" : "input";
  const int32_t buffer = addBuffer(residualBuffer(name, chunk, offset, true));
  transfer.buffers = {buffer};
  body.instructions.push_back(std::move(transfer));
  return buffer;
}

// Makes what was received whole.
void RoleBuilder::emitGather(Body& body, int32_t chunk, int64_t offset, int32_t received) {
  if (!plan_.scatterGather) return;
  Instruction gather;
  gather.kind = InstructionKind::kAllGather;
  gather.group = program::GroupKind::kTp;
  gather.buffers = {received, addBuffer(residualBuffer("border", chunk, offset, false))};
  body.instructions.push_back(std::move(gather));
}

void RoleBuilder::emitPass(Body& body, const PassCode& code, Part part, int32_t chunk) {
  std::vector<int32_t>& buffers = buffersOf(code, chunk);
  for (const CodeItem& item : code.code) {
    if (item.overlap == Overlap::kJoin) {
      emitWait(body, Stream::kCompute, tpDone_);
      continue;
    }
    Instruction instruction;
    if (item.segment >= 0) {
      instruction.kind = InstructionKind::kCompute;
      instruction.segment = item.segment;
    } else {
      instruction.kind = item.collective;
      instruction.group = program::GroupKind::kTp;
      instruction.reduce = item.reduce;
    }
    if (item.overlap == Overlap::kStart) {
      lastComputed(body).event = tpReady_;
      emitWait(body, Stream::kTpReduce, tpReady_);
      instruction.stream = Stream::kTpReduce;
      instruction.event = tpDone_;
    }
    instruction.buffers.reserve(item.operands.size());
    for (const ValueId value : item.operands) {
      int32_t& buffer = buffers[static_cast<size_t>(value)];
      if (buffer < 0) buffer = bufferOf(code, part, chunk, value);
      instruction.buffers.push_back(buffer);
    }
    body.instructions.push_back(std::move(instruction));
  }
}

void RoleBuilder::emitLayers(Body& body, int32_t chunk, bool reversed,
                             const std::function<void()>& emitLayer) {
  Instruction repeat;
  repeat.kind = InstructionKind::kRepeat;
  repeat.count = static_cast<int32_t>(range(chunk).count);
  repeat.reversed = reversed;
  const size_t at = body.instructions.size();
  body.instructions.push_back(std::move(repeat));
  emitLayer();
  body.instructions[at].length = static_cast<int32_t>(body.instructions.size() - at - 1);
}

// The last instruction of the compute stream.
Instruction& RoleBuilder::lastComputed(Body& body) {
  return *std::find_if(body.instructions.rbegin(), body.instructions.rend(), [](const auto& in) {
    return in.stream == Stream::kCompute && in.kind != InstructionKind::kWait;
  });
}

Body RoleBuilder::forward(int32_t chunk) {
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  Body body;
  body.name = fmt::format("forward{}", chunk);
  if (!hasEmbedding(chunk)) {
    emitWait(body, Stream::kRecvForward, chunk, kComputedBackward);
    const int32_t input = emitTransfer(body, false, false, chunk, layout.residual);
    emitWait(body, Stream::kCompute, chunk, kReceivedForward);
    emitGather(body, chunk, layout.residual, input);
  }
  if (layout.tokens >= 0) {
    Instruction load;
    load.kind = InstructionKind::kLoadBatch;
    const int64_t ids = model_.graph->numTokens();
    load.buffers = {addBuffer(slotBuffer("tokens", chunk, layout.tokens, DType::kI32, ids)),
                    addBuffer(slotBuffer("labels", chunk, layout.labels, DType::kI32, ids))};
    body.instructions.push_back(std::move(load));
  }
  if (hasEmbedding(chunk)) emitPass(body, model_.embedding.forward, Part::kEmbedding, chunk);
  emitLayers(body, chunk, false,
             [&] { emitPass(body, model_.layer.forward, Part::kLayer, chunk); });
  if (hasHead(chunk)) emitPass(body, model_.head.forward, Part::kHead, chunk);
  body.instructions.back().event = event(chunk, kComputedForward);
  if (!hasHead(chunk)) {
    emitWait(body, Stream::kSendForward, chunk, kComputedForward);
    emitTransfer(body, true, false, chunk,
                 layout.residual + range(chunk).count * alignUp(model_.residualBytes));
  }
  return body;
}

// `reduces`: the gradients of layers and head, as soon as they are complete.
Body RoleBuilder::backward(int32_t chunk, bool reduces) {
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  Body body;
  body.name = fmt::format("backward{}{}", chunk, reduces ? ".last" : "");
  const ChunkEvent gradientFree = hasEmbedding(chunk) ? kComputedBackward : kSentBackward;
  if (hasHead(chunk)) {
    if (!hasEmbedding(chunk)) emitWait(body, Stream::kCompute, chunk, gradientFree);
    emitPass(body, model_.head.backward, Part::kHead, chunk);
    if (reduces) emitHeadReductions(body, chunk);
  } else {
    emitWait(body, Stream::kCompute, chunk, kSentForward);
    emitWait(body, Stream::kRecvBackward, chunk, gradientFree);
    if (layout.gradientStride > 0 && gradientFree != kComputedBackward)
      emitWait(body, Stream::kRecvBackward, chunk, kComputedBackward);
    const int64_t last = layout.gradient + range(chunk).count * layout.gradientStride;
    const int32_t gradient = emitTransfer(body, false, true, chunk, last);
    emitWait(body, Stream::kCompute, chunk, kReceivedBackward);
    emitGather(body, chunk, last, gradient);
  }
  emitLayers(body, chunk, true, [&] {
    emitPass(body, model_.layer.backward, Part::kLayer, chunk);
    if (reduces && !splitsBackward()) emitLayerReductions(body, chunk);
  });
  if (hasEmbedding(chunk)) emitPass(body, model_.embedding.backward, Part::kEmbedding, chunk);
  lastComputed(body).event = event(chunk, kComputedBackward);
  if (!hasEmbedding(chunk)) {
    emitWait(body, Stream::kSendBackward, chunk, kComputedBackward);
    emitTransfer(body, true, true, chunk, layout.gradient);
  }
  return body;
}

// The gradients of the layers' matrices. `reduces` them as soon as they are complete.
Body RoleBuilder::weights(int32_t chunk, bool reduces) {
  Body body;
  body.name = fmt::format("weights{}{}", chunk, reduces ? ".last" : "");
  emitLayers(body, chunk, true, [&] {
    emitPass(body, model_.layer.weights, Part::kLayer, chunk);
    if (reduces) emitLayerReductions(body, chunk);
  });
  lastComputed(body).event = event(chunk, kComputedBackward);
  return body;
}

void RoleBuilder::addBodies() {
  role_.bodies.push_back(begin());
  role_.bodies.push_back(step());
  const auto chunks = static_cast<int32_t>(chunks_.size());
  const bool isOnlyOne = plan_.numMicrobatches() == 1;
  const bool hasLast = overlapsDp() && !isOnlyOne;
  for (int32_t c = 0; c < chunks; ++c) {
    role_.bodies.push_back(forward(c));
    role_.bodies.push_back(backward(c, overlapsDp() && isOnlyOne));
  }
  for (int32_t c = 0; c < chunks && hasLast; ++c) role_.bodies.push_back(backward(c, true));
  if (!splitsBackward()) return;
  for (int32_t c = 0; c < chunks; ++c)
    role_.bodies.push_back(weights(c, overlapsDp() && isOnlyOne));
  for (int32_t c = 0; c < chunks && hasLast; ++c) role_.bodies.push_back(weights(c, true));
}

}  // namespace trireme::expand
