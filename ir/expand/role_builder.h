// Builds what the ranks of one pipeline position share: arena, buffers, parameters and bodies.
// Internal to ir/expand.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/expand/expand.h"
#include "ir/expand/lower_block.h"
#include "ir/expand/place.h"
#include "ir/expand/segments.h"

namespace trireme::expand {

// One pass, ready to be put into bodies.
struct PassCode {
  LoweredPass pass;
  Placement placement;
  std::vector<CodeItem> code;
};
struct BlockCode {
  LoweredBlock lowered;  // its passes are moved into the two below
  PassCode forward, backward, weights;
};
struct ModelCode {
  const graph::ModelGraph* graph = nullptr;
  BlockCode embedding, layer, head;
  int64_t residualBytes = 0;  // one residual-stream tensor on one rank
  int64_t residualElements = 0;
  DType computeDType = DType::kF32, stateDType = DType::kF32;
  int64_t workspaceBytes = 0;
  // Logical parameter numbers: embedding, then layer by layer, then the head's own.
  int32_t numEmbedding = 0, numPerLayer = 0, numHead = 0;
  int32_t numLogical(int64_t layers) const {
    return numEmbedding + numPerLayer * static_cast<int32_t>(layers) + numHead;
  }
};

class RoleBuilder {
 public:
  RoleBuilder(const ModelCode& model, const plan::Plan& plan, int32_t stage,
              std::vector<int32_t> slotsPerChunk);
  // Afterwards `role()` and `use()` are complete but for the tasks and, unless asked for, bodies.
  void build(bool withBodies);
  program::Role takeRole() { return std::move(role_); }
  const ArenaUse& use() const { return use_; }

  static constexpr int32_t kBeginBody = expand::kBeginBody;
  static constexpr int32_t kStepBody = expand::kStepBody;

 private:
  // Matrices of layers and head, if these are reduced in the last backward, before all others.
  enum class Class : uint8_t {
    kTied,
    kMatrixSplit,
    kMatrixWhole,
    kLayerMatrixSplit,
    kLayerMatrixWhole,
    kHeadMatrixSplit,
    kHeadMatrixWhole,
    kVectorSplit,
    kVectorWhole
  };
  static constexpr int kNumClasses = 9;
  using PerClass = std::array<int64_t, kNumClasses>;
  struct ParameterPlace {
    int32_t bucket = -1;
    int64_t offset = 0, layerStride = 0;  // elements
  };
  struct ChunkLayout {
    int64_t base = 0, slotBytes = 0;
    int64_t tokens = -1, labels = -1, residual = 0, gradient = 0;  // within a slot
    int64_t gradientStride = 0;  // from layer to layer; 0: they share one gradient
    int64_t layerSaved = 0, layerSavedStride = 0, headSaved = 0;
    std::vector<int64_t> layerSavedOffset, headSavedOffset;  // per entry of LoweredBlock::saved
    std::vector<ParameterPlace> layerParameters;
    PerClass layersBegin{}, layerElements{};  // in the bucket of the class
    int32_t eventBase = 0;
    std::string prefix;  // of the names of its buffers
  };
  // Where in the body a value is used: decides its address.
  enum class Part : uint8_t { kEmbedding, kLayer, kHead };
  enum ChunkEvent : int32_t {
    kReceivedForward,
    kComputedForward,
    kSentForward,
    kReceivedBackward,
    kComputedBackward,  // and again, if they come later, the gradients of weights
    kSentBackward,
    kNumChunkEvents
  };

  // parameters.cpp
  void placeParameters();
  Class classOf(const BlockCode& block, size_t parameter) const;
  int32_t bucketFor(Class c, bool isPartial);
  void alignLayers(PerClass& used) const;
  void placeBlock(const BlockCode& block, int32_t chunk, std::vector<ParameterPlace>& places);
  void addParameterRecord(const BlockCode& block, size_t parameter, const ParameterPlace& place,
                          int32_t chunk);
  int32_t logicalIndex(const BlockCode& block, size_t parameter) const;
  bool sharesEmbedding(const BlockCode& block, size_t parameter) const;
  void allocateBuckets();
  // layout.cpp
  void allocateChunks();
  void allocateScratch();
  int64_t take(int64_t bytes);
  int32_t addBuffer(program::Buffer buffer);
  int32_t bufferOf(const PassCode& code, Part part, int32_t chunk, ValueId value);
  // By value of a pass, -1: not asked for yet.
  std::vector<int32_t>& buffersOf(const PassCode& code, int32_t chunk);
  program::Buffer address(const PassCode& code, Part part, int32_t chunk, ValueId value) const;
  program::Buffer parameterAddress(const Value& value, Part part, int32_t chunk) const;
  program::Buffer slotAddress(int32_t chunk, int64_t offset, DType dtype, int64_t elements) const;
  program::Buffer slotBuffer(const std::string& name, int32_t chunk, int64_t offset, DType dtype,
                             int64_t elements) const;
  program::Buffer residualBuffer(const std::string& name, int32_t chunk, int64_t offset,
                                 bool onWire) const;
  // bodies.cpp
  void addBodies();
  program::Body forward(int32_t chunk);
  program::Body backward(int32_t chunk, bool reduces);
  program::Body weights(int32_t chunk, bool reduces);
  static program::Instruction& lastComputed(program::Body& body);
  void emitPass(program::Body& body, const PassCode& code, Part part, int32_t chunk);
  void emitLayers(program::Body& body, int32_t chunk, bool reversed,
                  const std::function<void()>& emitLayer);
  void emitWait(program::Body& body, program::Stream stream, int32_t chunk, ChunkEvent event);
  static void emitWait(program::Body& body, program::Stream stream, program::EventRef event);
  int32_t emitTransfer(program::Body& body, bool send, bool backwards, int32_t chunk,
                       int64_t offset);
  void emitGather(program::Body& body, int32_t chunk, int64_t offset, int32_t received);
  program::EventRef event(int32_t chunk, ChunkEvent event) const;
  program::Body begin();
  program::Body step();
  void emitReduction(program::Body& body, int32_t bucket);
  void emitParameterGather(program::Body& body, int32_t bucket);
  int32_t shardView(int32_t buffer);
  // overlap.cpp
  bool isReducedEarly(Class c) const;
  void emitLayerReductions(program::Body& body, int32_t chunk);
  void emitHeadReductions(program::Body& body, int32_t chunk);
  void emitEarlyReduction(program::Body& body, int32_t bucket, program::Buffer piece);
  void emitReductionWait(program::Body& body, int32_t chunk);
  program::Buffer pieceOf(int32_t buffer, int32_t pieces) const;

  const plan::LayerRange& range(int32_t chunk) const {
    return plan_.layers[static_cast<size_t>(stage_)][static_cast<size_t>(chunk)];
  }
  int32_t virtualStage(int32_t chunk) const {
    return chunk * static_cast<int32_t>(plan_.pp) + stage_;
  }
  int32_t lastVirtualStage() const {
    return static_cast<int32_t>(plan_.pp * plan_.virtualStages) - 1;
  }
  bool hasEmbedding(int32_t chunk) const { return virtualStage(chunk) == 0; }
  bool hasHead(int32_t chunk) const { return virtualStage(chunk) == lastVirtualStage(); }
  bool overlapsDp() const { return plan_.overlapReductions && plan_.dp() > 1; }
  bool overlapsTp() const { return plan_.overlapReductions && plan_.tp > 1; }
  bool splitsBackward() const { return plan::splitsBackward(plan_.schedule); }
  bool shardsState() const { return plan_.stateSharding == plan::StateSharding::kOptimizer; }

  const ModelCode& model_;
  const plan::Plan& plan_;
  int32_t stage_;
  std::vector<int32_t> slots_;
  program::Role role_;
  // The role's buffers by a hash of their offsets, linked in the order in which they came.
  struct Chain {
    int32_t first = -1, last = -1;
  };
  Chain& chainAt(int64_t offset) {
    const auto hash = static_cast<uint64_t>(offset) * 0x9e3779b97f4a7c15;  // of Fibonacci: Knuth
    return chains_[static_cast<size_t>(hash >> 32) & (chains_.size() - 1)];
  }
  std::vector<Chain> chains_;    // as many as a power of two
  std::vector<int32_t> nextAt_;  // by buffer; -1: none
  std::map<std::pair<const PassCode*, int32_t>, std::vector<int32_t>> buffersOfValues_;
  ArenaUse use_;
  std::vector<ChunkLayout> chunks_;
  std::vector<ParameterPlace> embeddingParameters_, headParameters_;
  std::array<int32_t, kNumClasses> bucketOfClass_{};
  std::vector<Class> classOfBucket_;
  std::vector<bool> bucketPartial_;
  program::EventRef reduced_;  // the latest early reduction
  // Of collectives beside a pass (beside.h): what the next reads is made; the latest is done.
  program::EventRef tpReady_, tpDone_;
  int64_t scratchBase_ = 0;
};

}  // namespace trireme::expand
