#include "runtime/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "ir/program/workspace.h"
#include "runtime/comm/thread_world.h"
#include "runtime/executor/optimizer.h"
#include "runtime/kernels/operands.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {
namespace {

using Work = MeasuredRanks::Work;

// Memory of one operand, aligned as in an arena.
class Block {
 public:
  explicit Block(int64_t bytes) : bytes_(static_cast<size_t>(bytes) + kAlignment) {}
  char* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }

 private:
  static constexpr size_t kAlignment = 64;
  std::vector<char> bytes_;
};

int64_t workspaceBytes(const program::Segment& segment) {
  int64_t bytes = 0;
  for (const program::SegmentOp& op : segment.ops)
    bytes = std::max(bytes, program::kernelWorkspaceBytes(op, segment.operands));
  return bytes;
}

// Calls of a segment, each on the operands that come next.
class SegmentRun {
 public:
  SegmentRun(const program::Segment& segment, const SegmentCode& code, int32_t index,
             Operands operands)
      : code_(code),
        index_(index),
        operands_(std::move(operands)),
        workspace_(workspaceBytes(segment)) {
    arguments_.resize(code.maxArguments());
    for (uint32_t i = 0; i < std::size(context_.keys); ++i)
      context_.keys[i] = makeRngKey(1, 1, 1, static_cast<RngStream>(i));
  }

  Status run() {
    return code_.run(index_,
                     {&context_, operands_.next(), arguments_.data(), workspace_.data(), &pool_});
  }

 private:
  const SegmentCode& code_;
  int32_t index_;
  Operands operands_;
  Block workspace_;
  std::vector<void*> arguments_;
  program::KernelContext context_;
  ThreadPool pool_{1};
};

struct Arrays {
  Arrays(const program::OperandType& type, int count) {
    for (int i = 0; i < count; ++i) {
      blocks.emplace_back(type.bytes());
      fillSmall(type, blocks.back().data());
    }
    for (int64_t i = 0; count > 3 && i < type.elements(); ++i)  // The second moment is a square.
      Tensor{blocks[3].data(), &type}.set(i, 0.01);
  }
  std::vector<Block> blocks;
  ThreadPool pool{1};
};

void triad(float* a, const float* b, const float* c, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 0.5F * c[i];
}

Status runMemory(MemoryWork work, DType type, int64_t elements, Arrays& arrays) {
  const auto data = [&](size_t i) { return arrays.blocks[i].data(); };
  switch (work) {
    case MemoryWork::kTriad:
      triad(reinterpret_cast<float*>(data(0)), reinterpret_cast<const float*>(data(1)),
            reinterpret_cast<const float*>(data(2)), elements);
      return {};
    case MemoryWork::kZero:
      std::memset(data(0), 0, static_cast<size_t>(elements * byteSize(type)));
      return {};
    case MemoryWork::kSumSquares: {
      volatile double sum = sumOfSquares(type, data(0), elements);
      static_cast<void>(sum);
      return {};
    }
    case MemoryWork::kAdamW:
      break;
  }
  AdamWStep step;
  step.learningRate = 1e-6;
  step.beta1 = 0.9, step.beta2 = 0.999, step.epsilon = 1e-8;
  AdamWArrays state;
  state.stateType = state.computeType = type;
  state.parameter = state.master = data(0);
  state.gradient = data(1);
  state.moment1 = data(2);
  state.moment2 = data(3);
  state.elements = elements;
  return adamW(step, state, arrays.pool);
}

// There and back again between ranks 2 i and 2 i + 1.
class Delivered final : public Condition {
 public:
  Delivered(Communicator& comm, int32_t peer, const MessageTag& tag, Block& into, int64_t bytes)
      : comm_(comm), peer_(peer), tag_(tag), into_(into), bytes_(bytes) {}
  bool ready() override {
    const Result<bool> arrived =
        comm_.receive(program::Stream::kRecvForward, peer_, tag_, into_.data(), bytes_);
    if (!arrived.has_value()) comm_.fail(arrived.error());
    return arrived.value_or(false);
  }
  int32_t awaitedRank() override { return peer_; }

 private:
  Communicator& comm_;
  int32_t peer_;
  MessageTag tag_;
  Block& into_;
  int64_t bytes_;
};
class Taken final : public Condition {
 public:
  Taken(Communicator& comm, int32_t peer) : comm_(comm), peer_(peer) {}
  bool ready() override {
    const Result<bool> sent = comm_.sent(program::Stream::kSendForward);
    if (!sent.has_value()) comm_.fail(sent.error());
    return sent.value_or(false);
  }
  int32_t awaitedRank() override { return peer_; }

 private:
  Communicator& comm_;
  int32_t peer_;
};

struct ExchangeRun {
  ExchangeRun(std::unique_ptr<Communicator> communicator, int32_t groupIndex, int64_t size,
              int64_t parts)
      : comm(std::move(communicator)), group(groupIndex), bytes(size), all(size), mine(size) {
    const program::OperandType type{DType::kF32, {size / 4}};
    fillSmall(type, all.data());
    fillSmall(type, mine.data());
    count = size / 4 / parts;
  }

  Status run(Exchange exchange) {
    using program::ReduceOp;
    switch (exchange) {
      case Exchange::kAllReduce:
        return comm->allReduce(group, all.data(), bytes / 4, DType::kF32, ReduceOp::kMax);
      case Exchange::kAllGather:
        return comm->allGather(group, mine.data(), all.data(), count, DType::kF32);
      case Exchange::kReduceScatter:
        return comm->reduceScatter(group, all.data(), mine.data(), count, DType::kF32,
                                   ReduceOp::kSum);
      case Exchange::kSend:
        break;
    }
    const bool first = comm->rank() % 2 == 0;
    TRIREME_RETURN_IF_ERROR(first ? send() : receive());
    return first ? receive() : send();
  }

  int32_t peer() const { return comm->rank() ^ 1; }
  Status send() {
    TRIREME_RETURN_IF_ERROR(
        comm->publish(program::Stream::kSendForward, peer(), {}, all.data(), bytes));
    Taken taken(*comm, peer());
    return comm->wait(taken);
  }
  Status receive() {
    Delivered delivered(*comm, peer(), {}, mine, bytes);
    return comm->wait(delivered);
  }

  std::unique_ptr<Communicator> comm;
  int32_t group;
  int64_t bytes, count = 0;
  Block all, mine;
};

}  // namespace

Result<Seconds> measureSegment(MeasuredRanks& ranks, const program::Bundle& bundle,
                               const SegmentCode& code, size_t index, int64_t most,
                               std::vector<OperandMemory>& memory) {
  TRIREME_CHECK(std::ssize(memory) == ranks.numRanks());
  const program::Segment& segment = bundle.program.segments[index];
  return ranks.independent([&](int32_t rank) -> Result<Work> {
    TRIREME_ASSIGN_OR_RETURN(Operands operands,
                             Operands::make(segment, most, memory[static_cast<size_t>(rank)]));
    auto run = std::make_shared<SegmentRun>(segment, code, static_cast<int32_t>(index),
                                            std::move(operands));
    return [run]() { return run->run(); };
  });
}

int numArrays(MemoryWork work) {
  switch (work) {
    case MemoryWork::kTriad:
      return 3;
    case MemoryWork::kAdamW:
      return 4;
    default:
      return 1;
  }
}

Result<Seconds> measureMemory(MeasuredRanks& ranks, MemoryWork work, DType type, int64_t elements) {
  if (type != DType::kF32 && type != DType::kF64)
    return Error(invalidArgument(fmt::format("state is f32 or f64, not {}", dtypeName(type))));
  const DType used = work == MemoryWork::kTriad ? DType::kF32 : type;
  return ranks.independent([=](int32_t) -> Result<Work> {
    auto arrays = std::make_shared<Arrays>(program::OperandType{used, {elements}}, numArrays(work));
    return [=]() { return runMemory(work, used, elements, *arrays); };
  });
}

Result<Seconds> measureExchange(MeasuredRanks& ranks, Exchange exchange, int32_t groupSize,
                                int64_t bytes) {
  std::vector<std::vector<int32_t>> groups;
  for (int32_t rank = 0; rank < ranks.numRanks(); ++rank) {
    if (rank % groupSize == 0) groups.emplace_back();
    groups.back().push_back(rank);
  }
  ThreadWorld world(ranks.numRanks(), groups, std::chrono::seconds(60));
  const auto prepare = [&](int32_t rank) -> Result<Work> {
    if (exchange == Exchange::kSend && (rank ^ 1) >= ranks.numRanks())
      return []() { return Status(); };
    auto run =
        std::make_shared<ExchangeRun>(world.communicator(rank), rank / groupSize, bytes, groupSize);
    return [run, exchange]() { return run->run(exchange); };
  };
  TRIREME_ASSIGN_OR_RETURN(const Seconds time, ranks.together(prepare));
  return exchange == Exchange::kSend ? time / 2.0 : time;
}

}  // namespace trireme::runtime
