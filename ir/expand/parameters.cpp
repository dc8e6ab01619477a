// Buckets and the state table of a role.
#include <fmt/format.h>

#include <algorithm>

#include "ir/expand/role_builder.h"

namespace trireme::expand {
namespace {

// Parameters start at multiples of this many elements, so that every dtype is aligned to 32 bytes.
constexpr int64_t kElementAlignment = 16;
int64_t alignElements(int64_t n) {
  return (n + kElementAlignment - 1) / kElementAlignment * kElementAlignment;
}

const char* className(int c) {
  constexpr const char* kNames[] = {"tied",         "matrix.split", "matrix.whole",
                                    "layers.split", "layers.whole", "head.split",
                                    "head.whole",   "vector.split", "vector.whole"};
  return kNames[c];
}

}  // namespace

RoleBuilder::Class RoleBuilder::classOf(const BlockCode& block, size_t parameter) const {
  const graph::Parameter& p = block.lowered.block->parameters[parameter];
  if (p.tied) return Class::kTied;
  graph::Tensor t;
  t.kind = graph::TensorKind::kParameter;
  t.dims = p.dims;
  const bool split = plan::homeSharding(t, {plan_.tp, plan_.sequenceParallel}).tpDim >= 0;
  if (p.decay && overlapsDp() && &block == &model_.layer)
    return split ? Class::kLayerMatrixSplit : Class::kLayerMatrixWhole;
  if (p.decay && overlapsDp() && &block == &model_.head)
    return split ? Class::kHeadMatrixSplit : Class::kHeadMatrixWhole;
  if (p.decay) return split ? Class::kMatrixSplit : Class::kMatrixWhole;
  return split ? Class::kVectorSplit : Class::kVectorWhole;
}

int32_t RoleBuilder::logicalIndex(const BlockCode& block, size_t parameter) const {
  const auto& parameters = block.lowered.block->parameters;
  const auto untiedBefore =
      std::count_if(parameters.begin(), parameters.begin() + static_cast<long>(parameter),
                    [](const graph::Parameter& p) { return !p.tied; });
  if (&block == &model_.embedding) return static_cast<int32_t>(parameter);
  if (&block == &model_.layer) return model_.numEmbedding + static_cast<int32_t>(parameter);
  if (parameters[parameter].tied) {
    const auto& tables = model_.embedding.lowered.block->parameters;
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [](const graph::Parameter& p) { return p.tied; });
    return static_cast<int32_t>(table - tables.begin());
  }
  return model_.numEmbedding + model_.numPerLayer * static_cast<int32_t>(model_.graph->numLayers) +
         static_cast<int32_t>(untiedBefore);
}

// With one stage the head reads the embedding's own table and adds to its gradient.
bool RoleBuilder::sharesEmbedding(const BlockCode& block, size_t parameter) const {
  return &block == &model_.head && stage_ == 0 && block.lowered.block->parameters[parameter].tied;
}

void RoleBuilder::addParameterRecord(const BlockCode& block, size_t parameter,
                                     const ParameterPlace& place, int32_t chunk) {
  const graph::Parameter& p = block.lowered.block->parameters[parameter];
  program::Parameter record;
  record.name = p.name;
  record.dims = p.logicalDims;
  for (const graph::Dim& d : p.dims) record.paddedDims.push_back(d.size);
  graph::Tensor t;
  t.kind = graph::TensorKind::kParameter;
  t.dims = p.dims;
  record.tpDim = plan::homeSharding(t, {plan_.tp, plan_.sequenceParallel}).tpDim;
  record.bucket = place.bucket;
  record.offset = place.offset;
  record.init = p.init;
  record.initStd = p.initStd;
  record.logicalIndex = logicalIndex(block, parameter);
  record.copy = p.tied && &block == &model_.head;
  if (chunk >= 0) {
    record.layerStride = place.layerStride;
    record.firstLayer = static_cast<int32_t>(range(chunk).first);
    record.numLayers = static_cast<int32_t>(range(chunk).count);
    record.logicalIndex += record.firstLayer * model_.numPerLayer;
    record.logicalStride = model_.numPerLayer;
  }
  role_.parameters.push_back(std::move(record));
}

int32_t RoleBuilder::bucketFor(Class c, bool isPartial) {
  int32_t& index = bucketOfClass_[static_cast<size_t>(c)];
  if (index < 0) {
    index = static_cast<int32_t>(role_.buckets.size());
    program::Bucket bucket;
    bucket.name = className(static_cast<int>(c));
    bucket.decay = c < Class::kVectorSplit;
    bucket.sharded = shardsState();
    bucket.pieces = 0;
    role_.buckets.push_back(bucket);
    classOfBucket_.push_back(c);
    bucketPartial_.push_back(isPartial);
  }
  TRIREME_CHECK(bucketPartial_[static_cast<size_t>(index)] == isPartial);
  TRIREME_CHECK(!isPartial || !isReducedEarly(c));
  return index;
}

// What is reduced layer by layer divides over the members by layer.
void RoleBuilder::alignLayers(PerClass& used) const {
  const int64_t multiple = kElementAlignment * (shardsState() ? plan_.dp() : 1);
  for (const Class c : {Class::kLayerMatrixSplit, Class::kLayerMatrixWhole}) {
    int64_t& elements = used[static_cast<size_t>(c)];
    elements = (elements + multiple - 1) / multiple * multiple;
  }
}

// Gives every parameter of the block a place behind what its bucket holds. A layer's parameters
// repeat with one stride per bucket.
void RoleBuilder::placeBlock(const BlockCode& block, int32_t chunk,
                             std::vector<ParameterPlace>& places) {
  const int64_t copies = chunk >= 0 ? range(chunk).count : 1;
  PerClass used{};
  const size_t n = block.lowered.block->parameters.size();
  places.resize(n);
  for (size_t i = 0; i < n; ++i) {
    if (sharesEmbedding(block, i)) {
      places[i] = embeddingParameters_[static_cast<size_t>(logicalIndex(block, i))];
      continue;
    }
    const Class c = classOf(block, i);
    int64_t& usedOfClass = used[static_cast<size_t>(c)];
    places[i].bucket = bucketFor(c, block.lowered.gradientPartial[i]);
    places[i].offset = role_.buckets[static_cast<size_t>(places[i].bucket)].elements + usedOfClass;
    usedOfClass += alignElements(block.lowered.parameterTypes[i].elements());
  }
  alignLayers(used);
  for (size_t i = 0; i < n; ++i) {
    if (sharesEmbedding(block, i)) continue;
    places[i].layerStride = chunk >= 0 ? used[static_cast<size_t>(classOf(block, i))] : 0;
    addParameterRecord(block, i, places[i], chunk);
  }
  for (size_t c = 0; c < used.size(); ++c) {
    if (used[c] == 0) continue;
    program::Bucket& bucket = role_.buckets[static_cast<size_t>(bucketOfClass_[c])];
    if (chunk >= 0) {
      ChunkLayout& layout = chunks_[static_cast<size_t>(chunk)];
      layout.layersBegin[c] = bucket.elements;
      layout.layerElements[c] = used[c];
      if (isReducedEarly(static_cast<Class>(c))) bucket.pieces += static_cast<int32_t>(copies);
    }
    bucket.elements += used[c] * copies;
  }
}

void RoleBuilder::placeParameters() {
  bucketOfClass_.fill(-1);
  const auto chunks = static_cast<int32_t>(plan_.virtualStages);
  if (stage_ == 0) placeBlock(model_.embedding, -1, embeddingParameters_);
  for (int32_t c = 0; c < chunks; ++c)
    placeBlock(model_.layer, c, chunks_[static_cast<size_t>(c)].layerParameters);
  if (hasHead(chunks - 1)) placeBlock(model_.head, -1, headParameters_);
  allocateBuckets();
}

void RoleBuilder::allocateBuckets() {
  const int64_t shards = shardsState() ? plan_.dp() : 1;
  for (program::Bucket& bucket : role_.buckets) {
    bucket.pieces = std::max(bucket.pieces, 1);
    const int64_t multiple = kElementAlignment * shards;
    bucket.elements = (bucket.elements + multiple - 1) / multiple * multiple;
    const auto allocate = [&](const char* what, DType dtype, int64_t elements, int64_t& use) {
      program::Buffer buffer;
      buffer.name = bucket.name + "." + what;
      buffer.dtype = dtype;
      buffer.elements = elements;
      buffer.offset = take(buffer.bytes());
      use += alignUp(buffer.bytes());
      return addBuffer(std::move(buffer));
    };
    const int64_t own = bucket.elements / shards;
    bucket.parameter = allocate("parameter", model_.computeDType, bucket.elements, use_.parameters);
    bucket.gradient = allocate("gradient", model_.stateDType, bucket.elements, use_.gradients);
    if (model_.computeDType != model_.stateDType)
      bucket.master = allocate("master", model_.stateDType, own, use_.optimizer);
    bucket.moment1 = allocate("moment1", model_.stateDType, own, use_.optimizer);
    bucket.moment2 = allocate("moment2", model_.stateDType, own, use_.optimizer);
  }
}

}  // namespace trireme::expand
