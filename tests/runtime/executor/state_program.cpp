#include "tests/runtime/executor/state_program.h"

#include "tests/runtime/executor/rank_grid.h"

namespace trireme::runtime {
namespace {

using namespace program;  // NOLINT: a test that is all program

class StateBuilder {
 public:
  explicit StateBuilder(const StateOptions& options) : options_(options) {}

  Bundle build() {
    p_.model = "state";
    p_.tp = options_.tp, p_.pp = 2, p_.dp = options_.dp;
    p_.numLayers = 3;
    Training& t = p_.training;
    t.seed = kStateSeed;
    t.sequenceLength = t.microbatchSize = t.numMicrobatches = 1;
    t.globalBatchSize = options_.dp;
    t.vocabSize = 1000;
    t.learningRate = 0.1, t.beta1 = 0.9, t.beta2 = 0.95, t.epsilon = 1e-8, t.weightDecay = 0.1;
    t.clipNorm = 1;
    t.stateDType = DType::kF32;
    t.computeDType = options_.bf16 ? DType::kBf16 : DType::kF32;
    addRole(0);
    addRole(1);
    addRankGrid(p_);
    Bundle bundle;
    bundle.program = p_;
    return bundle;
  }

 private:
  int32_t buffer(const std::string& name, int64_t elements, DType type) {
    Buffer b;
    b.name = name;
    b.dtype = type;
    b.elements = elements;
    b.offset = role_->arenaBytes;
    role_->arenaBytes += (b.bytes() + 63) / 64 * 64;
    role_->buffers.push_back(b);
    return static_cast<int32_t>(role_->buffers.size()) - 1;
  }

  int64_t padded(int64_t exact, bool sharded) const {
    const int64_t d = options_.dp;
    return sharded ? (exact + d - 1) / d * d : exact;
  }

  int32_t bucket(const std::string& name, int64_t exact, bool sharded, int32_t pieces = 1) {
    const int64_t elements = pieces * padded(exact / pieces, sharded), d = options_.dp;
    const int64_t owned = sharded ? elements / d : elements;
    Bucket b;
    b.name = name;
    b.elements = elements;
    b.decay = sharded;
    b.sharded = sharded;
    b.pieces = pieces;
    b.parameter = buffer(name + ".parameter", elements, p_.training.computeDType);
    b.gradient = buffer(name + ".gradient", elements, DType::kF32);
    if (options_.bf16) b.master = buffer(name + ".master", owned, DType::kF32);
    b.moment1 = buffer(name + ".moment1", owned, DType::kF32);
    b.moment2 = buffer(name + ".moment2", owned, DType::kF32);
    role_->buckets.push_back(b);
    return static_cast<int32_t>(role_->buckets.size()) - 1;
  }

  Parameter embedding(bool copy) const {
    Parameter e;
    e.name = "embedding";
    e.dims = {6, 5};
    e.paddedDims = {8, 5};
    e.tpDim = 0;
    e.init = InitKind::kNormal;
    e.initStd = 0.5;
    e.copy = copy;
    return e;
  }

  void addRole(int32_t stage) {
    role_ = &p_.roles.emplace_back();
    role_->name = stage == 0 ? "first" : "last";
    role_->stage = stage;
    const int64_t local = 40 / options_.tp, layer = 20 / options_.tp;
    const bool joins = stage == 0 && !options_.pieces;
    bucket("main", joins ? local + 3 * layer : local, options_.sharded);
    role_->parameters.push_back(embedding(stage == 1));
    if (stage == 0) {
      Parameter w;
      w.name = "layers.{}.w";
      w.dims = w.paddedDims = {5, 4};
      w.tpDim = 1;
      w.offset = local;
      w.layerStride = layer;
      if (options_.pieces) {
        w.bucket = bucket("layers", 3 * layer, options_.sharded, 3);
        w.offset = 0;
        w.layerStride = padded(layer, options_.sharded);
      }
      w.numLayers = 3;
      w.init = InitKind::kNormal;
      w.initStd = 2;
      w.logicalIndex = 1;
      w.logicalStride = 1;
      Parameter norm;
      norm.name = "norm";
      norm.dims = norm.paddedDims = {7};
      norm.bucket = bucket("norms", 7, false);
      norm.init = InitKind::kOnes;
      norm.logicalIndex = 4;
      role_->parameters.insert(role_->parameters.end(), {w, norm});
    }
    role_->squares = buffer("squares", 5, DType::kF64);
    role_->bodies.push_back({"step", {}});
    addStep();
    role_->tasks.push_back({0, -1, 0, 0, Direction::kStep});
  }

  void addStep() {
    auto& code = role_->bodies[0].instructions;
    Instruction in;
    in.kind = InstructionKind::kZero;
    in.buffers = {role_->squares};
    code.push_back(in);
    for (size_t b = 0; b < role_->buckets.size(); ++b) {
      const Bucket& bucket = role_->buckets[b];
      if (!options_.bf16) code.push_back(gradientIsParameter(bucket));
      in.kind = InstructionKind::kSumSquares;
      in.bucket = static_cast<int32_t>(b);
      code.push_back(in);
    }
    in.kind = InstructionKind::kAllReduce;
    in.group = options_.sharded ? GroupKind::kWorld : GroupKind::kModel;
    code.push_back(in);
    for (size_t b = 0; options_.adamW && b < role_->buckets.size(); ++b) {
      in.kind = InstructionKind::kAdamW;
      in.bucket = static_cast<int32_t>(b);
      code.push_back(in);
    }
    for (size_t b = 0; options_.adamW && b < role_->buckets.size(); ++b)
      if (role_->buckets[b].sharded) gather(Bucket(role_->buckets[b]));
  }

  // The parameters of all members, piece by piece.
  void gather(const Bucket& bucket) {
    Buffer piece = role_->buffers[static_cast<size_t>(bucket.parameter)];
    piece.elements /= bucket.pieces;
    piece.layerStride = piece.bytes();
    Buffer own = piece;
    own.elements /= options_.dp;
    own.dpStride = own.bytes();
    const auto first = static_cast<int32_t>(role_->buffers.size());
    role_->buffers.insert(role_->buffers.end(), {own, piece});
    Instruction repeat;
    repeat.kind = InstructionKind::kRepeat;
    repeat.count = bucket.pieces;
    repeat.length = 1;
    Instruction in;
    in.kind = InstructionKind::kAllGather;
    in.group = GroupKind::kDp;
    in.buffers = {first, first + 1};
    role_->bodies[0].instructions.insert(role_->bodies[0].instructions.end(), {repeat, in});
  }

  // gradient = zero + parameter
  Instruction gradientIsParameter(const Bucket& bucket) {
    const OperandType type{DType::kF32, {1, 1, bucket.elements}};
    Segment segment{"copy", {type, type, type}, {false, false, false}, {}};
    segment.ops.push_back({OpKind::kAdd, {}, {0, 1}, {2}});
    Instruction in;
    in.segment = static_cast<int32_t>(p_.segments.size());
    in.buffers = {bucket.parameter, buffer("zero", bucket.elements, DType::kF32), bucket.gradient};
    p_.segments.push_back(segment);
    return in;
  }

  StateOptions options_;
  Program p_;
  Role* role_ = nullptr;
};

}  // namespace

program::Bundle stateBundle(const StateOptions& options) { return StateBuilder(options).build(); }

}  // namespace trireme::runtime
