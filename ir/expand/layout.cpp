// The arena of a role: activation slots, scratch, and the address of every value.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ir/expand/role_builder.h"
#include "ir/plan/plan.h"

namespace trireme::expand {

int64_t RoleBuilder::take(int64_t bytes) {
  const int64_t offset = role_.arenaBytes;
  role_.arenaBytes += alignUp(bytes);
  return offset;
}

int32_t RoleBuilder::addBuffer(program::Buffer buffer) {
  const auto index = static_cast<int32_t>(role_.buffers.size());
  Chain& chain = chainAt(buffer.offset);
  (chain.first < 0 ? chain.first : nextAt_[static_cast<size_t>(chain.last)]) = index;
  chain.last = index;
  nextAt_.push_back(-1);
  role_.buffers.push_back(std::move(buffer));
  return index;
}

// One slot holds, for one microbatch: tokens and labels where they are read, the residual stream at
// every layer's entry and at the exit, its gradient (all of them, if read when the layers below
// have made theirs), and what each layer and the head keep.
void RoleBuilder::allocateChunks() {
  const int64_t idBytes = alignUp(model_.graph->numTokens() * byteSize(DType::kI32));
  const auto packed = [](const LoweredBlock& block, std::vector<int64_t>& offsets) {
    int64_t bytes = 0;
    for (size_t i = 0; i < block.saved.size(); ++i) {
      const bool isOwn = block.savedPlace[i] == i;
      offsets.push_back(isOwn ? bytes : offsets[block.savedPlace[i]]);
      if (isOwn) bytes += alignUp(block.savedTypes[i].bytes());
    }
    return bytes;
  };
  for (int32_t c = 0; c < static_cast<int32_t>(chunks_.size()); ++c) {
    ChunkLayout& layout = chunks_[static_cast<size_t>(c)];
    layout.prefix = fmt::format("chunk{}.", c);
    const int64_t layers = range(c).count;
    int64_t bytes = 0;
    const auto reserve = [&](int64_t size) { return std::exchange(bytes, bytes + size); };
    if (hasEmbedding(c) || hasHead(c)) {
      layout.tokens = reserve(idBytes);
      layout.labels = reserve(idBytes);
    }
    layout.residual = reserve((layers + 1) * alignUp(model_.residualBytes));
    layout.gradientStride = model_.layer.lowered.keepsGradients ? alignUp(model_.residualBytes) : 0;
    layout.gradient = reserve(alignUp(model_.residualBytes) + layers * layout.gradientStride);
    layout.layerSavedStride = packed(model_.layer.lowered, layout.layerSavedOffset);
    layout.layerSaved = reserve(layers * layout.layerSavedStride);
    if (hasHead(c)) layout.headSaved = reserve(packed(model_.head.lowered, layout.headSavedOffset));
    layout.slotBytes = bytes;
    layout.base = take(bytes * slots_[static_cast<size_t>(c)]);
    layout.eventBase = role_.numEvents;
    role_.numEvents += kNumChunkEvents * slots_[static_cast<size_t>(c)];
    use_.activations += alignUp(bytes * slots_[static_cast<size_t>(c)]);
    use_.slotBytes.push_back(bytes);
  }
}

void RoleBuilder::allocateScratch() {
  int64_t bytes = 0;
  const auto cover = [&](const BlockCode& block) {
    for (const PassCode* pass : {&block.forward, &block.backward, &block.weights})
      bytes = std::max(bytes, pass->placement.scratchBytes);
  };
  cover(model_.layer);
  if (hasEmbedding(0)) cover(model_.embedding);
  if (hasHead(static_cast<int32_t>(chunks_.size()) - 1)) cover(model_.head);
  scratchBase_ = take(bytes);
  use_.scratch = alignUp(bytes);

  program::Buffer workspace;
  workspace.name = "workspace";
  workspace.dtype = DType::kI32;
  workspace.elements = (model_.workspaceBytes + 3) / 4;
  workspace.offset = take(workspace.bytes());
  use_.workspace = alignUp(workspace.bytes());
  role_.workspace = addBuffer(std::move(workspace));
}

program::Buffer RoleBuilder::slotBuffer(const std::string& name, int32_t chunk, int64_t offset,
                                        DType dtype, int64_t elements) const {
  program::Buffer buffer = slotAddress(chunk, offset, dtype, elements);
  buffer.name = chunks_[static_cast<size_t>(chunk)].prefix + name;
  return buffer;
}

program::Buffer RoleBuilder::slotAddress(int32_t chunk, int64_t offset, DType dtype,
                                         int64_t elements) const {
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  program::Buffer buffer;
  buffer.dtype = dtype;
  buffer.elements = elements;
  buffer.offset = layout.base + offset;
  buffer.slotStride = layout.slotBytes;
  return buffer;
}

// A residual-stream tensor of the slot. On the wire, with scatter-gather, only this rank's tp-th.
program::Buffer RoleBuilder::residualBuffer(const std::string& name, int32_t chunk, int64_t offset,
                                            bool onWire) const {
  program::Buffer buffer =
      slotBuffer(name, chunk, offset, model_.computeDType, model_.residualElements);
  if (onWire && plan_.scatterGather) {
    buffer.name += ".shard";
    buffer.elements /= plan_.tp;
    buffer.tpStride = buffer.bytes();
  }
  return buffer;
}

program::Buffer RoleBuilder::parameterAddress(const Value& value, Part part, int32_t chunk) const {
  const BlockCode& block = part == Part::kEmbedding ? model_.embedding
                           : part == Part::kLayer   ? model_.layer
                                                    : model_.head;
  const auto& places = part == Part::kEmbedding ? embeddingParameters_
                       : part == Part::kLayer ? chunks_[static_cast<size_t>(chunk)].layerParameters
                                              : headParameters_;
  const auto index = static_cast<size_t>(
      block.lowered.block->tensors[static_cast<size_t>(value.tensor)].parameter);
  const ParameterPlace& place = places[index];
  const program::Bucket& bucket = role_.buckets[static_cast<size_t>(place.bucket)];
  const bool gradient = value.storage == Storage::kParameterGradient;
  const program::Buffer& flat =
      role_.buffers[static_cast<size_t>(gradient ? bucket.gradient : bucket.parameter)];
  program::Buffer buffer;
  buffer.dtype = flat.dtype;
  buffer.elements = value.type.elements();
  buffer.offset = flat.offset + place.offset * byteSize(flat.dtype);
  buffer.layerStride = place.layerStride * byteSize(flat.dtype);
  return buffer;
}

program::Buffer RoleBuilder::address(const PassCode& code, Part part, int32_t chunk,
                                     ValueId value) const {
  const ValueId root = code.placement.root[static_cast<size_t>(value)];
  const Value& v = code.pass.values[static_cast<size_t>(root)];
  const ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
  const int64_t x = alignUp(model_.residualBytes);
  const auto slot = [&](int64_t offset, int64_t layerStride) {
    program::Buffer b = slotAddress(chunk, offset, v.type.dtype, v.type.elements());
    b.layerStride = layerStride;
    return b;
  };
  // The residual stream, or its gradient: at the entry of a layer or the head, and at the exit of a
  // layer or the embedding.
  const auto entry = [&](int64_t offset, int64_t stride) {
    return part == Part::kLayer ? slot(offset, stride)
                                : slot(offset + range(chunk).count * stride, 0);
  };
  const auto exit = [&](int64_t offset, int64_t stride) {
    return part == Part::kLayer ? slot(offset + stride, stride) : slot(offset, 0);
  };
  switch (v.storage) {
    case Storage::kTemporary: {
      program::Buffer b;
      b.dtype = v.type.dtype;
      b.elements = v.type.elements();
      b.offset = scratchBase_ + code.placement.scratchOffset[static_cast<size_t>(root)];
      return b;
    }
    case Storage::kSaved:
    case Storage::kKept: {
      const LoweredBlock& block = part == Part::kLayer ? model_.layer.lowered : model_.head.lowered;
      const auto index = static_cast<size_t>(
          std::find(block.saved.begin(), block.saved.end(), v.tensor) - block.saved.begin());
      TRIREME_CHECK(part != Part::kEmbedding && index < block.saved.size());
      if (part == Part::kLayer)
        return slot(layout.layerSaved + layout.layerSavedOffset[index], layout.layerSavedStride);
      return slot(layout.headSaved + layout.headSavedOffset[index], 0);
    }
    case Storage::kInput:
      return entry(layout.residual, x);
    case Storage::kOutput:
      return exit(layout.residual, x);
    case Storage::kInputGradient:
      return entry(layout.gradient, layout.gradientStride);
    case Storage::kOutputGradient:
      return exit(layout.gradient, layout.gradientStride);
    case Storage::kTokens:
      return slot(layout.tokens, 0);
    case Storage::kLabels:
      return slot(layout.labels, 0);
    case Storage::kParameter:
    case Storage::kParameterGradient:
      return parameterAddress(v, part, chunk);
    case Storage::kLoss:
      return role_.buffers[static_cast<size_t>(role_.loss)];
  }
  return {};
}

int32_t RoleBuilder::bufferOf(const PassCode& code, Part part, int32_t chunk, ValueId value) {
  const Value& v = code.pass.values[static_cast<size_t>(value)];
  program::Buffer buffer = address(code, part, chunk, value);
  buffer.dtype = v.type.dtype;
  buffer.elements = v.type.elements();
  const std::string& prefix = chunks_[static_cast<size_t>(chunk)].prefix;
  const auto isNamed = [&](std::string_view name) {
    return name.size() == prefix.size() + v.name.size() && name.ends_with(v.name) &&
           name.starts_with(prefix);
  };
  for (int32_t index = chainAt(buffer.offset).first; index >= 0;
       index = nextAt_[static_cast<size_t>(index)]) {
    const program::Buffer& b = role_.buffers[static_cast<size_t>(index)];
    if (b.offset == buffer.offset && b.layerStride == buffer.layerStride &&
        b.elements == buffer.elements && b.dtype == buffer.dtype && isNamed(b.name))
      return index;
  }
  buffer.name.reserve(prefix.size() + v.name.size());
  buffer.name.append(prefix).append(v.name);
  return addBuffer(std::move(buffer));
}

// Operands name a value many times, and a search makes hundreds of expansions. A pass belongs to
// one part, and buffers are never changed or removed, so that a value keeps its buffer.
std::vector<int32_t>& RoleBuilder::buffersOf(const PassCode& code, int32_t chunk) {
  std::vector<int32_t>& buffers = buffersOfValues_[{&code, chunk}];
  buffers.resize(code.pass.values.size(), -1);
  return buffers;
}

}  // namespace trireme::expand
