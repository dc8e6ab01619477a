#include "tests/runtime/executor/tiny_program.h"

#include "tests/runtime/executor/rank_grid.h"

namespace trireme::runtime {
namespace {

using namespace program;  // NOLINT: a test that is all program

constexpr int32_t kLayers = kTinyLayersPerStage;

class Builder {
 public:
  explicit Builder(const TinyOptions& options) : options_(options) {
    const int64_t exact = kLayers * kTinyWidth;
    elements_ = (exact + options.dp - 1) / options.dp * options.dp;
  }

  Bundle build() {
    Program& p = bundle_.program;
    p.model = "tiny";
    p.tp = options_.tp, p.pp = 2, p.dp = options_.dp;
    p.numLayers = 2 * kLayers;
    Training& t = p.training;
    t.seed = 11;
    t.sequenceLength = kTinyWidth;
    t.microbatchSize = 1;
    t.numMicrobatches = options_.numMicrobatches;
    t.globalBatchSize = options_.dp * options_.numMicrobatches;
    t.vocabSize = 1000;
    t.learningRate = 0.5, t.beta1 = 0.9, t.beta2 = 0.95, t.epsilon = 1e-8, t.weightDecay = 0.1;
    t.clipNorm = 1;
    t.computeDType = t.stateDType = DType::kF64;
    addSegments(p);
    for (int32_t stage : {0, 1}) addRole(p, stage);
    addRankGrid(p);
    return std::move(bundle_);
  }

 private:
  static Segment add(const std::string& name, int64_t width) {
    const OperandType x{DType::kF64, {1, 1, width}};
    Segment segment{name, {x, x}, {false, false}, {}};
    segment.ops.push_back({OpKind::kAdd, {}, {0, 1}, {0}});  // x += y
    return segment;
  }

  static void addSegments(Program& p) {
    p.segments.push_back(add("accumulate", kTinyWidth));
    const OperandType token{DType::kF64, {1, kTinyWidth}};
    Segment loss{"loss", {token, token, {DType::kF64, {1}}}, {false, false, false}, {}};
    loss.ops.push_back({OpKind::kTokenLoss, {}, {0, 1}, {2}});
    p.segments.push_back(loss);
  }

  int32_t buffer(const std::string& name, int64_t elements, DType type = DType::kF64,
                 int32_t slots = 1) {
    Buffer b;
    b.name = name;
    b.dtype = type;
    b.elements = elements;
    b.offset = arena_;
    b.slotStride = slots > 1 ? b.bytes() : 0;
    arena_ += b.bytes() * slots;
    role_->buffers.push_back(b);
    return static_cast<int32_t>(role_->buffers.size()) - 1;
  }

  int32_t view(int32_t of, int64_t elements, int64_t layerStride, int64_t dpStride) {
    Buffer b = role_->buffers[static_cast<size_t>(of)];
    b.elements = elements;
    b.layerStride = layerStride;
    b.dpStride = dpStride;
    role_->buffers.push_back(b);
    return static_cast<int32_t>(role_->buffers.size()) - 1;
  }

  void addRole(Program& p, int32_t stage) {
    role_ = &p.roles.emplace_back();
    arena_ = 0;
    role_->name = stage == 0 ? "first" : "last";
    role_->stage = stage;
    const int32_t m = options_.numMicrobatches;
    tokens_ = buffer("tokens", kTinyWidth, DType::kI32);
    labels_ = buffer("labels", kTinyWidth, DType::kI32);
    arena_ = (arena_ + 63) / 64 * 64;
    y_ = buffer("y", kTinyWidth, DType::kF64, m);
    loss_ = buffer("loss", 1);
    squares_ = buffer("squares", 2 * kLayers);
    w_ = buffer("w", elements_);
    g_ = buffer("g", elements_);
    const int64_t shard = options_.sharded ? elements_ / options_.dp : elements_;
    m1_ = buffer("m1", shard);
    m2_ = buffer("m2", shard);
    if (options_.scaled) role_->lossScaling = buffer("loss scaling", kLossScalingElements);
    wLayer_ = view(w_, kTinyWidth, kTinyWidth * 8, 0);
    gLayer_ = view(g_, kTinyWidth, kTinyWidth * 8, 0);
    wShard_ = view(w_, shard, 0, shard * 8);
    gShard_ = view(g_, shard, 0, shard * 8);
    role_->arenaBytes = arena_;
    role_->loss = stage == 1 ? loss_ : -1;
    role_->squares = squares_;
    role_->numEvents = 2 * m;
    role_->chunks.push_back({stage, stage * kLayers, kLayers, m, stage == 0, stage == 1});
    addState(stage);
    role_->bodies = {begin(), forward(stage), backward(stage), step(stage)};
    addTasks();
  }

  void addState(int32_t stage) {
    role_->buckets.push_back({"all", elements_, true, options_.sharded, w_, g_, -1, m1_, m2_});
    Parameter w;
    w.name = "layers.{}.w";
    w.dims = w.paddedDims = {kTinyWidth};
    w.layerStride = kTinyWidth;
    w.firstLayer = stage * kLayers;
    w.numLayers = kLayers;
    w.init = InitKind::kOnes;
    w.logicalIndex = stage * kLayers;
    w.logicalStride = 1;
    role_->parameters.push_back(w);
  }

  Body begin() const {
    Body body{"begin", {}};
    for (int32_t b : {g_, loss_, squares_}) body.instructions.push_back(zero(b));
    return body;
  }

  Body forward(int32_t stage) const {
    Body body{stage == 0 ? "first.forward" : "last.forward", {}};
    auto& code = body.instructions;
    if (stage == 0) {
      Instruction load;
      load.kind = InstructionKind::kLoadBatch;
      load.buffers = {tokens_, labels_};
      code.push_back(load);
      code.push_back(zero(y_));
    } else {
      code.push_back(message(InstructionKind::kRecv, Stream::kRecvForward, 0, 0, kForwardEvent));
      code.push_back(wait(Stream::kCompute, kForwardEvent));
    }
    code.push_back(repeat(false));
    code.push_back(compute(0, {y_, wLayer_}));
    if (stage == 0) {
      Instruction sum = collective(InstructionKind::kAllReduce, GroupKind::kTp, {y_});
      sum.event = event(kForwardEvent);
      code.push_back(sum);
      code.push_back(wait(Stream::kSendForward, kForwardEvent));
      code.push_back(message(InstructionKind::kSend, Stream::kSendForward, 1, 0, kNoEvent));
    } else {
      code.push_back(compute(1, {y_, y_, loss_}));
    }
    return body;
  }

  Body backward(int32_t stage) const {
    Body body{stage == 0 ? "first.backward" : "last.backward", {}};
    auto& code = body.instructions;
    if (stage == 0) {
      code.push_back(message(InstructionKind::kRecv, Stream::kRecvBackward, 1, 1, kBackwardEvent));
      code.push_back(wait(Stream::kCompute, kBackwardEvent));
    }
    code.push_back(repeat(true));
    code.push_back(compute(0, {gLayer_, y_}));
    if (stage == 1) {
      code.back().event = event(kBackwardEvent);
      code.push_back(wait(Stream::kSendBackward, kBackwardEvent));
      code.push_back(message(InstructionKind::kSend, Stream::kSendBackward, 0, 1, kNoEvent));
    }
    return body;
  }

  Body step(int32_t stage) const {
    Body body{"step", {}};
    auto& code = body.instructions;
    if (options_.sharded)
      code.push_back(collective(InstructionKind::kReduceScatter, GroupKind::kDp, {g_, gShard_}));
    else
      code.push_back(collective(InstructionKind::kAllReduce, GroupKind::kDp, {g_}));
    if (stage == 1)
      code.push_back(collective(InstructionKind::kAllReduce, GroupKind::kDp, {loss_}));
    Instruction squares = zero(squares_);
    squares.kind = InstructionKind::kSumSquares;
    squares.bucket = 0;
    code.push_back(squares);
    code.push_back(collective(InstructionKind::kAllReduce,
                              options_.sharded ? GroupKind::kWorld : GroupKind::kModel,
                              {squares_}));
    squares.kind = InstructionKind::kAdamW;
    code.push_back(squares);
    if (options_.scaled) {
      Instruction update = zero(squares_);
      update.kind = InstructionKind::kUpdateLossScale;
      update.buffers.push_back(role_->lossScaling);
      code.push_back(update);
    }
    if (options_.sharded)
      code.push_back(collective(InstructionKind::kAllGather, GroupKind::kDp, {wShard_, w_}));
    return body;
  }

  void addTasks() {
    const int32_t m = options_.numMicrobatches;
    role_->tasks.push_back({0, -1, 0, 0, Direction::kStep});
    for (int32_t i = 0; i < m; ++i) role_->tasks.push_back({1, 0, i, i, Direction::kForward});
    for (int32_t i = 0; i < m; ++i) role_->tasks.push_back({2, 0, i, i, Direction::kBackward});
    role_->tasks.push_back({3, -1, 0, 0, Direction::kStep});
  }

  enum EventKind { kNoEvent, kForwardEvent, kBackwardEvent };
  EventRef event(EventKind kind) const {
    if (kind == kNoEvent) return {};
    return {kind == kForwardEvent ? 0 : options_.numMicrobatches, true};
  }
  static Instruction zero(int32_t buffer) {
    Instruction in;
    in.kind = InstructionKind::kZero;
    in.buffers = {buffer};
    return in;
  }
  static Instruction repeat(bool reversed) {
    Instruction in;
    in.kind = InstructionKind::kRepeat;
    in.count = kLayers;
    in.length = 1;
    in.reversed = reversed;
    return in;
  }
  static Instruction compute(int32_t segment, std::vector<int32_t> buffers) {
    Instruction in;
    in.segment = segment;
    in.buffers = std::move(buffers);
    return in;
  }
  static Instruction collective(InstructionKind kind, GroupKind group,
                                std::vector<int32_t> buffers) {
    Instruction in;
    in.kind = kind;
    in.group = group;
    in.buffers = std::move(buffers);
    return in;
  }
  Instruction wait(Stream stream, EventKind kind) const {
    Instruction in;
    in.kind = InstructionKind::kWait;
    in.stream = stream;
    in.event = event(kind);
    return in;
  }
  Instruction message(InstructionKind kind, Stream stream, int32_t peerStage, int32_t virtualStage,
                      EventKind signals) const {
    Instruction in;
    in.kind = kind;
    in.stream = stream;
    in.buffers = {y_};
    in.peerStage = peerStage;
    in.virtualStage = virtualStage;
    in.event = event(signals);
    return in;
  }

  TinyOptions options_;
  Bundle bundle_;
  Role* role_ = nullptr;
  int64_t arena_ = 0, elements_ = 0;
  int32_t tokens_ = 0, labels_ = 0, y_ = 0, loss_ = 0, squares_ = 0, w_ = 0, g_ = 0, m1_ = 0,
          m2_ = 0, wLayer_ = 0, gLayer_ = 0, wShard_ = 0, gShard_ = 0;
};

}  // namespace

program::Bundle tinyBundle(const TinyOptions& options) { return Builder(options).build(); }

}  // namespace trireme::runtime
