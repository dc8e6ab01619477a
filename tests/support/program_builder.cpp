#include "tests/support/program_builder.h"

#include <algorithm>
#include <functional>
#include <map>

namespace trireme::testing {
namespace {

using namespace program;

constexpr int64_t kSequence = 4, kBatch = 1, kHidden = 8, kFfn = 16, kVocab = 16;
constexpr int64_t kTokens = kSequence * kBatch;

size_t at(int64_t i) { return static_cast<size_t>(i); }
int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The segments of the model, by name.
class Segments {
 public:
  explicit Segments(int64_t tp) : tp_(tp) {
    const std::vector<int64_t> x{kSequence, kBatch, kHidden}, u{kSequence, kBatch, kFfn / tp},
        logits{kSequence, kBatch, kVocab / tp}, ids{kSequence, kBatch}, w1{kFfn / tp, kHidden},
        w2{kHidden, kFfn / tp}, table{kVocab / tp, kHidden};
    const DType f = DType::kF32, i = DType::kI32;
    const OpAttributes loss = lossAttributes();
    add("embedding.forward", {{i, ids}, {f, table}, {f, x}},
        {{OpKind::kEmbedding, loss, {0, 1}, {2}}});
    add("embedding.backward", {{i, ids}, {f, x}, {f, table}},
        {{OpKind::kEmbeddingGrad, loss, {0, 1}, {2}}});
    add("layer.forward", {{f, x}, {f, w1}, {f, w2}, {f, u}, {f, x}},
        {{OpKind::kMatmul, {}, {0, 1}, {3}}, {OpKind::kMatmul, {}, {3, 2}, {4}}});
    add("layer.backward.0", {{f, x}, {f, x}, {f, u}, {f, w2}, {f, u}, {f, w1}, {f, w2}},
        {{OpKind::kMatmulGradInput, {}, {0, 3}, {4}},
         {OpKind::kMatmulGradWeight, {}, {0, 2}, {6}},
         {OpKind::kMatmulGradWeight, {}, {4, 1}, {5}}});
    add("layer.backward.1", {{f, u}, {f, w1}, {f, x}},
        {{OpKind::kMatmulGradInput, {}, {0, 1}, {2}}});
    add("head.forward.0", {{f, x}, {f, table}, {f, logits}, {f, ids}},
        {{OpKind::kMatmul, {}, {0, 1}, {2}}, {OpKind::kLossMax, loss, {2}, {3}}});
    add("head.forward.1", {{f, logits}, {f, ids}, {i, ids}, {f, ids}, {f, ids}},
        {{OpKind::kLossTarget, loss, {0, 1, 2}, {3}}, {OpKind::kLossSumExp, loss, {0, 1}, {4}}});
    add("head.forward.2", {{f, ids}, {f, ids}, {DType::kF64, {1}}},
        {{OpKind::kTokenLoss, {}, {0, 1}, {2}}});
    add("head.backward",
        {{f, logits},
         {f, ids},
         {f, ids},
         {i, ids},
         {f, logits},
         {f, table},
         {f, x},
         {f, x},
         {f, table}},
        {{OpKind::kLossGrad, loss, {0, 1, 2, 3}, {4}},
         {OpKind::kMatmulGradInput, {}, {4, 5}, {6}},
         {OpKind::kMatmulGradWeight, {}, {4, 7}, {8}}});
  }

  int32_t operator[](const std::string& name) const { return index_.at(name); }
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  OpAttributes lossAttributes() const {
    OpAttributes a;
    a.logicalVocab = kVocab;
    a.scale = 1.0 / kTokens;
    a.widthSharded = tp_ > 1;
    return a;
  }
  void add(const std::string& name, std::vector<OperandType> operands, std::vector<SegmentOp> ops) {
    index_[name] = static_cast<int32_t>(segments_.size());
    std::vector<bool> temporary(operands.size());
    segments_.push_back({name, std::move(operands), std::move(temporary), std::move(ops)});
  }

  int64_t tp_;
  std::vector<Segment> segments_;
  std::map<std::string, int32_t> index_;
};

enum ChunkEvent {
  kReceivedForward,
  kComputedForward,
  kSentForward,
  kReceivedBackward,
  kComputedBackward,
  kSentBackward,
  kNumChunkEvents
};

struct ChunkBuffers {
  int32_t tokens, labels, input, output, x, xNext, u, gradient, logits, max, sumExp;
  int32_t w1, w2, dw1, dw2;
  int32_t eventBase = 0;
};

class RoleMaker {
 public:
  RoleMaker(const PipelineShape& shape, const Segments& segments, int32_t stage,
            const std::vector<Pass>& order)
      : shape_(shape), segments_(segments), stage_(stage) {
    role_.name = "stage" + std::to_string(stage);
    role_.stage = stage;
    assignSlots(order);
    addParameters();
    for (int32_t c = 0; c < shape.virtualStages; ++c) addChunk(c);
    du_ = add("du", DType::kF32, kTokens * kFfn / shape.tp);
    target_ = add("target", DType::kF32, kTokens);
    role_.workspace = add("workspace", DType::kI32, 16);
    addBodies();
    dropIdleBuffers();
  }
  Role take() { return std::move(role_); }

 private:
  int32_t virtualStages() const { return shape_.pp * shape_.virtualStages; }
  int32_t virtualStage(int32_t c) const { return c * shape_.pp + stage_; }
  bool hasEmbedding(int32_t c) const { return virtualStage(c) == 0; }
  bool hasHead(int32_t c) const { return virtualStage(c) == virtualStages() - 1; }

  // The buffers that only gave a place to others.
  void dropIdleBuffers() {
    std::vector<int32_t*> uses = {&role_.loss, &role_.squares, &role_.workspace};
    for (Bucket& b : role_.buckets)
      for (int32_t* buffer : {&b.parameter, &b.gradient, &b.master, &b.moment1, &b.moment2})
        uses.push_back(buffer);
    for (Body& body : role_.bodies)
      for (Instruction& in : body.instructions)
        for (int32_t& buffer : in.buffers) uses.push_back(&buffer);
    std::vector<int32_t> number(role_.buffers.size(), -1);
    std::vector<Buffer> kept;
    for (int32_t* use : uses) {
      if (*use < 0) continue;
      int32_t& n = number[at(*use)];
      if (n < 0) {
        n = static_cast<int32_t>(kept.size());
        kept.push_back(role_.buffers[at(*use)]);
      }
      *use = n;
    }
    role_.buffers = std::move(kept);
  }

  // The lowest free slot of the chunk, from a forward to its backward.
  void assignSlots(const std::vector<Pass>& order) {
    role_.tasks.push_back({0, -1, 0, 0, Direction::kStep});
    std::vector<std::vector<int32_t>> tenants(at(shape_.virtualStages));
    for (const Pass& pass : order) {
      std::vector<int32_t>& slots = tenants[at(pass.chunk)];
      const int32_t wanted = pass.direction == Direction::kForward ? -1 : pass.microbatch;
      auto slot = std::find(slots.begin(), slots.end(), wanted);
      if (slot == slots.end()) slot = slots.insert(slot, -1);
      *slot = pass.direction == Direction::kForward ? pass.microbatch : -1;
      const int32_t body = 2 + 2 * pass.chunk + (pass.direction == Direction::kForward ? 0 : 1);
      role_.tasks.push_back({body, pass.chunk, pass.microbatch,
                             static_cast<int32_t>(slot - slots.begin()), pass.direction});
    }
    role_.tasks.push_back({1, -1, 0, 0, Direction::kStep});
    for (int32_t c = 0; c < shape_.virtualStages; ++c) {
      const int32_t vs = virtualStage(c);
      role_.chunks.push_back({vs, vs * shape_.layersPerChunk, shape_.layersPerChunk,
                              static_cast<int32_t>(tenants[at(c)].size()), hasEmbedding(c),
                              hasHead(c)});
    }
  }

  int32_t add(const std::string& name, DType dtype, int64_t elements) {
    Buffer b;
    b.name = name;
    b.dtype = dtype;
    b.elements = elements;
    b.offset = role_.arenaBytes;
    role_.arenaBytes += aligned(b.bytes());
    return push(b);
  }
  int32_t push(const Buffer& buffer) {
    role_.buffers.push_back(buffer);
    return static_cast<int32_t>(role_.buffers.size()) - 1;
  }
  // Elements [first, first + count) of another buffer.
  int32_t view(int32_t whole, const std::string& name, int64_t first, int64_t count,
               int64_t layerStride = 0) {
    Buffer b = role_.buffers[at(whole)];
    b.name = name;
    b.elements = count;
    b.offset += first * byteSize(b.dtype);
    b.layerStride = layerStride * byteSize(b.dtype);
    return push(b);
  }

  void addParameter(const std::string& name, std::vector<int64_t> dims, int32_t tpDim,
                    int32_t chunk, int32_t logicalIndex) {
    Parameter p;
    p.name = name;
    p.dims = p.paddedDims = std::move(dims);
    p.tpDim = tpDim;
    p.offset = elements_;
    p.init = InitKind::kNormal;
    p.initStd = 0.02;
    p.logicalIndex = logicalIndex;
    if (chunk >= 0) {
      p.layerStride = 2 * kFfn * kHidden / shape_.tp;
      p.firstLayer = role_.chunks[at(chunk)].firstLayer;
      p.numLayers = role_.chunks[at(chunk)].numLayers;
      p.logicalStride = 2;
    }
    elements_ += p.localElements(shape_.tp);
    role_.parameters.push_back(std::move(p));
  }

  void addParameters() {
    const int32_t layers = virtualStages() * shape_.layersPerChunk;
    if (stage_ == 0) addParameter("embedding", {kVocab, kHidden}, 0, -1, 0);
    for (int32_t c = 0; c < shape_.virtualStages; ++c) {
      const int32_t logical = 1 + 2 * role_.chunks[at(c)].firstLayer;
      addParameter("layers.{}.w1", {kFfn, kHidden}, 0, c, logical);
      addParameter("layers.{}.w2", {kHidden, kFfn}, 1, c, logical + 1);
      elements_ += (shape_.layersPerChunk - 1) * 2 * kFfn * kHidden / shape_.tp;
    }
    if (stage_ == shape_.pp - 1) addParameter("head", {kVocab, kHidden}, 0, -1, 1 + 2 * layers);
    Bucket b;
    b.name = "weights";
    b.elements = (elements_ + 16 * shape_.dp - 1) / (16 * shape_.dp) * (16 * shape_.dp);
    b.decay = true;
    b.sharded = shape_.shardedState;
    const int64_t own = b.sharded ? b.elements / shape_.dp : b.elements;
    b.parameter = add("parameter", DType::kF32, b.elements);
    b.gradient = add("gradient", DType::kF32, b.elements);
    b.moment1 = add("moment1", DType::kF32, own);
    b.moment2 = add("moment2", DType::kF32, own);
    role_.buckets.push_back(b);
    role_.squares = add("squares", DType::kF64, 2 + 2 * layers);
    if (stage_ == shape_.pp - 1) role_.loss = add("loss", DType::kF64, 1);
  }

  void addChunk(int32_t c) {
    const int64_t layers = shape_.layersPerChunk, x = kTokens * kHidden,
                  u = kTokens * kFfn / shape_.tp;
    const int64_t base = role_.arenaBytes;
    const std::string prefix = "chunk" + std::to_string(c) + ".";
    const size_t first = role_.buffers.size();
    ChunkBuffers b{};
    b.tokens = add(prefix + "tokens", DType::kI32, kTokens);
    b.labels = add(prefix + "labels", DType::kI32, kTokens);
    const int32_t stack = add(prefix + "x.all", DType::kF32, (layers + 1) * x);
    b.x = view(stack, prefix + "x", 0, x, x);
    b.xNext = view(stack, prefix + "x.next", x, x, x);
    b.input = view(stack, prefix + "input", 0, x);
    b.output = view(stack, prefix + "output", layers * x, x);
    const int32_t hidden = add(prefix + "u.all", DType::kF32, layers * u);
    b.u = view(hidden, prefix + "u", 0, u, u);
    b.gradient = add(prefix + "gradient", DType::kF32, x);
    b.logits = add(prefix + "logits", DType::kF32, kTokens * kVocab / shape_.tp);
    b.max = add(prefix + "max", DType::kF32, kTokens);
    b.sumExp = add(prefix + "sum_exp", DType::kF32, kTokens);
    const int64_t slot = role_.arenaBytes - base;
    for (size_t i = first; i < role_.buffers.size(); ++i) role_.buffers[i].slotStride = slot;
    role_.arenaBytes = base + slot * role_.chunks[at(c)].numSlots;
    const Bucket& bucket = role_.buckets[0];
    const int64_t matrix = kFfn * kHidden / shape_.tp;
    for (const Parameter& p : role_.parameters) {
      if (p.numLayers == 0 || p.firstLayer != role_.chunks[at(c)].firstLayer) continue;
      const bool w1 = p.tpDim == 0;
      (w1 ? b.w1 : b.w2) =
          view(bucket.parameter, prefix + (w1 ? "w1" : "w2"), p.offset, matrix, p.layerStride);
      (w1 ? b.dw1 : b.dw2) =
          view(bucket.gradient, prefix + (w1 ? "dw1" : "dw2"), p.offset, matrix, p.layerStride);
    }
    b.eventBase = role_.numEvents;
    role_.numEvents += kNumChunkEvents * role_.chunks[at(c)].numSlots;
    chunks_.push_back(b);
  }

  int32_t tableView(const std::string& name, bool gradient) {
    for (const Parameter& p : role_.parameters)
      if (p.name == name)
        return view(gradient ? role_.buckets[0].gradient : role_.buckets[0].parameter,
                    name + (gradient ? ".gradient" : ".weight"), p.offset,
                    p.localElements(shape_.tp));
    return -1;
  }

  EventRef event(int32_t c, ChunkEvent e) const {
    return {chunks_[at(c)].eventBase + e * role_.chunks[at(c)].numSlots, true};
  }
  static Instruction instruction(InstructionKind kind, std::vector<int32_t> buffers,
                                 GroupKind group = GroupKind::kTp) {
    Instruction in;
    in.kind = kind;
    in.buffers = std::move(buffers);
    in.group = group;
    return in;
  }
  void compute(Body& body, const std::string& segment, std::vector<int32_t> buffers) const {
    Instruction in = instruction(InstructionKind::kCompute, std::move(buffers));
    in.segment = segments_[segment];
    body.instructions.push_back(in);
  }
  void sumOverTp(Body& body, int32_t buffer, ReduceOp reduce = ReduceOp::kSum) const {
    if (shape_.tp == 1) return;
    Instruction in = instruction(InstructionKind::kAllReduce, {buffer});
    in.reduce = reduce;
    body.instructions.push_back(in);
  }
  void wait(Body& body, Stream stream, EventRef event) const {
    Instruction in = instruction(InstructionKind::kWait, {});
    in.stream = stream;
    in.event = event;
    body.instructions.push_back(in);
  }
  void transfer(Body& body, bool send, bool backward, int32_t c, int32_t buffer) const {
    Instruction in = instruction(send ? InstructionKind::kSend : InstructionKind::kRecv, {buffer});
    const bool toNext = send != backward;
    in.peerStage = toNext ? (stage_ + 1) % shape_.pp : (stage_ + shape_.pp - 1) % shape_.pp;
    in.virtualStage = send ? virtualStage(c) : virtualStage(c) + (backward ? 1 : -1);
    in.stream = send ? (backward ? Stream::kSendBackward : Stream::kSendForward)
                     : (backward ? Stream::kRecvBackward : Stream::kRecvForward);
    in.event = event(c, send ? (backward ? kSentBackward : kSentForward)
                             : (backward ? kReceivedBackward : kReceivedForward));
    body.instructions.push_back(in);
  }
  void layers(Body& body, bool reversed, const std::function<void()>& inside) const {
    Instruction repeat = instruction(InstructionKind::kRepeat, {});
    repeat.count = shape_.layersPerChunk;
    repeat.reversed = reversed;
    const size_t first = body.instructions.size();
    body.instructions.push_back(repeat);
    inside();
    body.instructions[first].length = static_cast<int32_t>(body.instructions.size() - first - 1);
  }

  Body forward(int32_t c) {
    const ChunkBuffers b = chunks_[at(c)];
    Body body{"forward" + std::to_string(c), {}};
    if (!hasEmbedding(c)) {
      wait(body, Stream::kRecvForward, event(c, kComputedBackward));
      transfer(body, false, false, c, b.input);
      wait(body, Stream::kCompute, event(c, kReceivedForward));
    }
    if (hasEmbedding(c) || hasHead(c))
      body.instructions.push_back(instruction(InstructionKind::kLoadBatch, {b.tokens, b.labels}));
    if (hasEmbedding(c)) {
      compute(body, "embedding.forward", {b.tokens, tableView("embedding", false), b.input});
      sumOverTp(body, b.input);
    }
    layers(body, false, [&] {
      compute(body, "layer.forward", {b.x, b.w1, b.w2, b.u, b.xNext});
      sumOverTp(body, b.xNext);
    });
    if (hasHead(c)) {
      compute(body, "head.forward.0", {b.output, tableView("head", false), b.logits, b.max});
      sumOverTp(body, b.max, ReduceOp::kMax);
      compute(body, "head.forward.1", {b.logits, b.max, b.labels, target_, b.sumExp});
      sumOverTp(body, target_);
      sumOverTp(body, b.sumExp);
      compute(body, "head.forward.2", {target_, b.sumExp, role_.loss});
    }
    body.instructions.back().event = event(c, kComputedForward);
    if (!hasHead(c)) {
      wait(body, Stream::kSendForward, event(c, kComputedForward));
      transfer(body, true, false, c, b.output);
    }
    return body;
  }

  Body backward(int32_t c) {
    const ChunkBuffers b = chunks_[at(c)];
    Body body{"backward" + std::to_string(c), {}};
    if (hasHead(c)) {
      wait(body, Stream::kCompute, event(c, kSentBackward));
      compute(body, "head.backward",
              {b.logits, b.max, b.sumExp, b.labels, b.logits, tableView("head", false), b.gradient,
               b.output, tableView("head", true)});
      sumOverTp(body, b.gradient);
    } else {
      wait(body, Stream::kCompute, event(c, kSentForward));
      wait(body, Stream::kRecvBackward, event(c, kComputedBackward));
      wait(body, Stream::kRecvBackward, event(c, kSentBackward));
      transfer(body, false, true, c, b.gradient);
      wait(body, Stream::kCompute, event(c, kReceivedBackward));
    }
    layers(body, true, [&] {
      compute(body, "layer.backward.0", {b.gradient, b.x, b.u, b.w2, du_, b.dw1, b.dw2});
      compute(body, "layer.backward.1", {du_, b.w1, b.gradient});
      sumOverTp(body, b.gradient);
    });
    if (hasEmbedding(c))
      compute(body, "embedding.backward", {b.tokens, b.gradient, tableView("embedding", true)});
    body.instructions.back().event =
        event(c, kComputedBackward);  // In a repeat: the last one counts.
    if (!hasEmbedding(c)) {
      wait(body, Stream::kSendBackward, event(c, kComputedBackward));
      transfer(body, true, true, c, b.gradient);
    }
    return body;
  }

  Body begin() const {
    Body body{"begin", {}};
    body.instructions.push_back(instruction(InstructionKind::kZero, {role_.buckets[0].gradient}));
    if (role_.loss >= 0)
      body.instructions.push_back(instruction(InstructionKind::kZero, {role_.loss}));
    return body;
  }

  int32_t shard(int32_t buffer) {
    Buffer b = role_.buffers[at(buffer)];
    b.name += ".shard";
    b.elements /= shape_.dp;
    b.dpStride = b.bytes();
    return push(b);
  }

  Body step() {
    const Bucket bucket = role_.buckets[0];
    Body body{"step", {}};
    const auto emit = [&](InstructionKind kind, std::vector<int32_t> buffers, GroupKind group) {
      body.instructions.push_back(instruction(kind, std::move(buffers), group));
      if (kind == InstructionKind::kSumSquares || kind == InstructionKind::kAdamW)
        body.instructions.back().bucket = 0;
    };
    if (bucket.sharded) {
      emit(InstructionKind::kReduceScatter, {bucket.gradient, shard(bucket.gradient)},
           GroupKind::kDp);
    } else if (shape_.dp > 1) {
      emit(InstructionKind::kAllReduce, {bucket.gradient}, GroupKind::kDp);
    }
    if (role_.loss >= 0 && shape_.dp > 1)
      emit(InstructionKind::kAllReduce, {role_.loss}, GroupKind::kDp);
    emit(InstructionKind::kZero, {role_.squares}, GroupKind::kTp);
    emit(InstructionKind::kSumSquares, {role_.squares}, GroupKind::kTp);
    if (shape_.tp * shape_.pp > 1 || bucket.sharded)
      emit(InstructionKind::kAllReduce, {role_.squares},
           bucket.sharded ? GroupKind::kWorld : GroupKind::kModel);
    emit(InstructionKind::kAdamW, {role_.squares}, GroupKind::kTp);
    if (bucket.sharded)
      emit(InstructionKind::kAllGather, {shard(bucket.parameter), bucket.parameter},
           GroupKind::kDp);
    return body;
  }

  void addBodies() {
    role_.bodies.push_back(begin());
    role_.bodies.push_back(step());
    for (int32_t c = 0; c < shape_.virtualStages; ++c) {
      role_.bodies.push_back(forward(c));
      role_.bodies.push_back(backward(c));
    }
  }

  const PipelineShape& shape_;
  const Segments& segments_;
  int32_t stage_;
  Role role_;
  int64_t elements_ = 0;
  std::vector<ChunkBuffers> chunks_;
  int32_t du_ = -1, target_ = -1;
};

void addRanks(const PipelineShape& shape, Program& program) {
  std::map<std::pair<GroupKind, int32_t>, int32_t> known;
  for (int32_t pp = 0; pp < shape.pp; ++pp)
    for (int32_t dp = 0; dp < shape.dp; ++dp)
      for (int32_t tp = 0; tp < shape.tp; ++tp) {
        const auto rank = static_cast<int32_t>(program.ranks.size());
        RankInfo info{pp, tp, dp, pp, {}};
        const auto join = [&](GroupKind kind, int32_t key) {
          const auto [it, fresh] =
              known.emplace(std::pair(kind, key), static_cast<int32_t>(program.groups.size()));
          if (fresh) program.groups.push_back({kind, {}});
          program.groups[at(it->second)].ranks.push_back(rank);
          info.group[at(static_cast<int>(kind))] = it->second;
        };
        const bool end = pp == 0 || pp == shape.pp - 1;
        join(GroupKind::kTp, dp + shape.dp * pp);
        join(GroupKind::kDp, tp + shape.tp * pp);
        join(GroupKind::kPp, tp + shape.tp * dp);
        join(GroupKind::kEmbedding, end ? tp + shape.tp * dp : shape.tp * shape.dp + rank);
        join(GroupKind::kModel, dp);
        join(GroupKind::kWorld, 0);
        program.ranks.push_back(info);
      }
}

}  // namespace

Order gpipeOrder(int32_t pp, int32_t numMicrobatches) {
  Order order(at(pp));
  for (auto& rank : order)
    for (Direction d : {Direction::kForward, Direction::kBackward})
      for (int32_t m = 0; m < numMicrobatches; ++m) rank.push_back({d, 0, m});
  return order;
}

Order oneForwardOneBackwardOrder(int32_t pp, int32_t numMicrobatches) {
  Order order(at(pp));
  for (int32_t r = 0; r < pp; ++r) {
    const int32_t warmUp = std::min(pp - 1 - r, numMicrobatches);
    int32_t f = 0, b = 0;
    while (f < warmUp) order[at(r)].push_back({Direction::kForward, 0, f++});
    while (f < numMicrobatches) {
      order[at(r)].push_back({Direction::kForward, 0, f++});
      order[at(r)].push_back({Direction::kBackward, 0, b++});
    }
    while (b < numMicrobatches) order[at(r)].push_back({Direction::kBackward, 0, b++});
  }
  return order;
}

Order interleavedOrder(int32_t pp, int32_t virtualStages, int32_t numMicrobatches) {
  const int32_t total = numMicrobatches * virtualStages, group = pp * virtualStages;
  const auto pass = [&](Direction d, int32_t k) {
    const int32_t chunk = k % group / pp;
    return Pass{d, d == Direction::kForward ? chunk : virtualStages - 1 - chunk,
                k / group * pp + k % pp};
  };
  Order order(at(pp));
  for (int32_t r = 0; r < pp; ++r) {
    const int32_t warmUp = numMicrobatches == pp
                               ? total
                               : std::min(2 * (pp - r - 1) + (virtualStages - 1) * pp, total);
    int32_t f = 0, b = 0;
    while (f < warmUp) order[at(r)].push_back(pass(Direction::kForward, f++));
    while (f < total) {
      order[at(r)].push_back(pass(Direction::kForward, f++));
      order[at(r)].push_back(pass(Direction::kBackward, b++));
    }
    while (b < total) order[at(r)].push_back(pass(Direction::kBackward, b++));
  }
  return order;
}

Program buildPipeline(const PipelineShape& shape, const Order& order) {
  Program program;
  program.model = "two-matrix";
  program.tp = shape.tp;
  program.pp = shape.pp;
  program.dp = shape.dp;
  program.virtualStages = shape.virtualStages;
  program.numLayers = int64_t{shape.pp} * shape.virtualStages * shape.layersPerChunk;
  Training& t = program.training;
  t.seed = 7;
  t.sequenceLength = kSequence;
  t.microbatchSize = kBatch;
  t.numMicrobatches = shape.numMicrobatches;
  t.globalBatchSize = kBatch * shape.numMicrobatches * shape.dp;
  t.vocabSize = kVocab;
  t.learningRate = 1e-3;
  t.beta1 = 0.9;
  t.beta2 = 0.95;
  t.epsilon = 1e-8;
  Segments segments(shape.tp);
  for (int32_t stage = 0; stage < shape.pp; ++stage)
    program.roles.push_back(RoleMaker(shape, segments, stage, order[at(stage)]).take());
  program.segments = segments.take();
  addRanks(shape, program);
  return program;
}

Program buildPipeline(const PipelineShape& shape) {
  return buildPipeline(shape,
                       shape.virtualStages > 1
                           ? interleavedOrder(shape.pp, shape.virtualStages, shape.numMicrobatches)
                           : oneForwardOneBackwardOrder(shape.pp, shape.numMicrobatches));
}

}  // namespace trireme::testing
