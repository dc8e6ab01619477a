#include "runtime/measure/measured_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "ir/base/format.h"
#include "ir/base/rng.h"
#include "ir/program/workspace.h"
#include "runtime/device/cuda/nccl_communicator.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/f16.h"
#include "runtime/measure/median.h"

namespace trireme::runtime {
namespace {

using program::GroupKind;
using program::Stream;

constexpr int64_t kAlignment = 256;
constexpr int64_t kMaxSets = 256;  // of operands: a step has no more tensors of a kind
constexpr int64_t kSetsBytes = int64_t{1} << 30;  // that they take, or one: no cache holds as much
// Kinds that stand for group sizes, in the order of groupSizes(). kPp is the pipeline of messages.
constexpr std::array kSizeKinds = {GroupKind::kTp, GroupKind::kDp, GroupKind::kEmbedding,
                                   GroupKind::kModel, GroupKind::kWorld};

int64_t aligned(int64_t bytes) { return program::roundUp(bytes, kAlignment); }

int64_t operandBytes(const program::Segment& segment) {
  int64_t bytes = 0;
  for (const program::OperandType& type : segment.operands) bytes += aligned(type.bytes());
  return bytes;
}

int64_t workspaceBytes(const std::vector<program::Segment>& segments) {
  int64_t bytes = 0;
  for (const program::Segment& segment : segments)
    for (const program::SegmentOp& op : segment.ops)
      bytes = std::max(bytes, program::kernelWorkspaceBytes(op, segment.operands));
  return aligned(bytes);
}

// x + y of 32 elements.
program::Segment tinySegment() {
  const program::OperandType row{DType::kF32, {1, 1, 32}};
  program::Segment segment;
  segment.name = "launch";
  segment.operands = {row, row, row};
  segment.temporary.assign(3, false);
  segment.ops = {{program::OpKind::kAdd, {}, {0, 1}, {2}}};
  return segment;
}

program::Instruction onBuffer(program::InstructionKind kind, Stream stream) {
  program::Instruction in;
  in.kind = kind;
  in.stream = stream;
  in.buffers = {0};
  return in;
}

// Nobody executes it: it says which ranks talk with which, from which the communicators follow.
program::Body talk(int32_t rank, int32_t numRanks, size_t numGroupSizes) {
  using program::InstructionKind;
  program::Body body{"talk", {}};
  for (size_t i = 0; i < numGroupSizes; ++i) {
    body.instructions.push_back(onBuffer(InstructionKind::kAllReduce, Stream::kCompute));
    body.instructions.back().group = kSizeKinds[i];
  }
  if ((rank ^ 1) >= numRanks) return body;
  body.instructions.push_back(rank % 2 == 0
                                  ? onBuffer(InstructionKind::kSend, Stream::kSendForward)
                                  : onBuffer(InstructionKind::kRecv, Stream::kRecvForward));
  body.instructions.back().peerStage = rank ^ 1;
  return body;
}

std::string bytesText(int64_t bytes) { return formatBytes(Bytes(static_cast<double>(bytes))); }

Result<GpuInfo> infoOf(const cuda::Gpu& gpu) {
  GpuInfo info;
  info.name = gpu.name();
  info.capability = gpu.capability();
  info.numMultiprocessors = gpu.numMultiprocessors();
  TRIREME_RETURN_IF_ERROR(cuda::driverStatus(
      gpu.driver(), gpu.driver().driverVersion(&info.driverVersion), "asking for its version"));
  TRIREME_ASSIGN_OR_RETURN(info.totalBytes, gpu.totalBytes());
  TRIREME_ASSIGN_OR_RETURN(info.freeBytes, gpu.freeBytes());
  return info;
}

}  // namespace

Result<std::unique_ptr<MeasuredGpus>> MeasuredGpus::open(const cuda::Apis& apis, int32_t numRanks,
                                                         const GpuTiming& timing) {
  if (numRanks > 1 && apis.nccl == nullptr)
    return Error(internalError("several GPUs, and nobody has loaded NCCL"));
  std::unique_ptr<MeasuredGpus> measured(new MeasuredGpus(apis, timing));
  for (int32_t i = 0; i < numRanks; ++i) {
    TRIREME_ASSIGN_OR_RETURN(measured->gpus_.emplace_back(), cuda::Gpu::open(apis, i));
    TRIREME_ASSIGN_OR_RETURN(const GpuInfo info, infoOf(*measured->gpus_.back()));
    GpuInfo& all = measured->info_;
    if (i == 0) all = info;
    if (info.name != all.name)
      return Error(invalidArgument(fmt::format(
          "GPU 0 is a {}, GPU {} a {}: measure one kind at a time (CUDA_VISIBLE_DEVICES chooses)",
          all.name, i, info.name)));
    all.totalBytes = std::min(all.totalBytes, info.totalBytes);
    all.freeBytes = std::min(all.freeBytes, info.freeBytes);
  }
  return measured;
}

// Ranks take leave of each other on their own threads, all at once.
MeasuredGpus::~MeasuredGpus() {
  for (const Rank& rank : ranks_)
    if (rank.device != nullptr) rank.device->quiesce();
  if (!ranks_.empty() && world_ != nullptr)
    threads_.run([&](int32_t index) { ranks_[static_cast<size_t>(index)].comm.reset(); });
  for (Rank& rank : ranks_) rank.device.reset();
}

std::vector<int32_t> MeasuredGpus::groupSizes(int32_t numRanks) {
  std::vector<int32_t> sizes;
  for (int32_t size = 2; size < numRanks && sizes.size() + 1 < kSizeKinds.size(); size *= 2)
    if (numRanks % size == 0) sizes.push_back(size);
  if (numRanks > 1) sizes.push_back(numRanks);
  return sizes;
}

void MeasuredGpus::buildProgram(std::vector<program::Segment> segments, int64_t arenaBytes) {
  bundle_.target.arch = "cuda";
  program::Program& program = bundle_.program;
  program.segments = std::move(segments);
  program.segments.push_back(tinySegment());
  const int64_t workspace = workspaceBytes(program.segments);
  tensorBytes_ = (arenaBytes - workspace) / kAlignment * kAlignment;
  const std::vector<int32_t> sizes = groupSizes(numRanks());
  program.pp = numRanks();
  program.groups.push_back({GroupKind::kPp, {}});
  program.ranks.resize(gpus_.size());
  for (int32_t rank = 0; rank < numRanks(); ++rank) {
    program::Role& role = program.roles.emplace_back();
    role.name = fmt::format("gpu {}", rank);
    role.stage = rank;
    role.arenaBytes = arenaBytes;
    role.buffers = {{"tensors", DType::kF32, tensorBytes_ / 4, 0},
                    {"workspace", DType::kI32, workspace / 4, tensorBytes_}};
    role.workspace = 1;
    role.bodies = {talk(rank, numRanks(), sizes.size())};
    program::RankInfo& info = program.ranks[static_cast<size_t>(rank)];
    info.role = info.ppIndex = rank;
    program.groups.front().ranks.push_back(rank);
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    for (int32_t rank = 0; rank < numRanks(); ++rank) {
      if (rank % sizes[i] == 0) program.groups.push_back({kSizeKinds[i], {}});
      program.groups.back().ranks.push_back(rank);
      program.ranks[static_cast<size_t>(rank)].group[static_cast<size_t>(kSizeKinds[i])] =
          static_cast<int32_t>(program.groups.size()) - 1;
    }
}

Status MeasuredGpus::start(std::vector<program::Segment> segments, int64_t arenaBytes) {
  TRIREME_CHECK(ranks_.empty());
  buildProgram(std::move(segments), arenaBytes);
  for (const program::Segment& segment : bundle_.program.segments)
    if (operandBytes(segment) > tensorBytes_)
      return invalidArgument(fmt::format("{} takes {}, and there are {}", segment.name,
                                         bytesText(operandBytes(segment)),
                                         bytesText(std::max<int64_t>(tensorBytes_, 0))));
  if (arenaBytes > info_.freeBytes)
    return resourceExhausted(fmt::format("measuring takes {} of {}, of which {} are free",
                                         bytesText(arenaBytes), info_.name,
                                         bytesText(info_.freeBytes)));
  std::vector<std::vector<int32_t>> groups;
  for (const program::Group& group : bundle_.program.groups) groups.push_back(group.ranks);
  world_ = std::make_unique<ThreadWorld>(
      numRanks(), groups,
      std::chrono::nanoseconds(static_cast<int64_t>(timing_.timeoutSeconds * 1e9)));
  TRIREME_RETURN_IF_ERROR(threads_.start(numRanks()));
  ranks_.resize(gpus_.size());
  return onAll([&](Rank& rank) { return prepare(rank, static_cast<int32_t>(&rank - &ranks_[0])); });
}

Status MeasuredGpus::prepare(Rank& rank, int32_t index) {
  const auto i = static_cast<size_t>(index);
  TRIREME_ASSIGN_OR_RETURN(rank.image, Arena::allocate(bundle_.program.roles[i].arenaBytes));
  TRIREME_ASSIGN_OR_RETURN(rank.program, resolveRank(bundle_.program, index, rank.image.data()));
  for (uint32_t stream = 0; stream < std::size(rank.context.keys); ++stream)
    rank.context.keys[stream] = makeRngKey(1, 1, 1, static_cast<RngStream>(stream));
  TRIREME_ASSIGN_OR_RETURN(rank.device, cuda::CudaRank::create(*gpus_[i], bundle_, rank.program));
  rank.device->setWatch([this] { return world_->failed() ? world_->failure() : Status(); });
  TRIREME_RETURN_IF_ERROR(fill(rank, DType::kF32, tensorBytes_));
  if (numRanks() == 1) return {};
  TRIREME_ASSIGN_OR_RETURN(rank.comm,
                           cuda::NcclCommunicator::create(*rank.device, world_->communicator(index),
                                                          *apis_.nccl, timing_.timeoutSeconds));
  return {};
}

// Products of zeros take less power than others, and so less time; as do those of infinities, which
// results become that are factors again. As bf16 and as f32, which begins with one, the numbers are
// the same.
Status MeasuredGpus::fill(Rank& rank, DType type, int64_t bytes) {
  constexpr int64_t kPattern = int64_t{4} << 20;
  const int64_t patternBytes = std::min(kPattern, bytes);
  const DType pattern = type == DType::kF16 ? type : DType::kBf16;
  if (rank.pattern != pattern) {
    rank.pattern = pattern;
    auto* numbers = reinterpret_cast<uint16_t*>(rank.image.data());
    uint32_t state = 1;
    for (int64_t i = 0; i < std::min(kPattern, tensorBytes_) / 2; ++i) {
      state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
      const float number = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      numbers[i] = pattern == DType::kF16 ? toF16(number).bits : toBf16(number).bits;
    }
  }
  TRIREME_RETURN_IF_ERROR(rank.device->beginStep());
  TRIREME_RETURN_IF_ERROR(rank.device->store(rank.image.data(), patternBytes));
  char* all = tensors(rank);
  for (int64_t filled = patternBytes; filled < bytes; filled *= 2)
    TRIREME_RETURN_IF_ERROR(
        rank.device->copy(all + filled, all, std::min(filled, bytes - filled), Stream::kCompute));
  return finish(rank);
}

char* MeasuredGpus::tensors(const Rank& rank) const { return rank.device->program().address(0); }

int32_t MeasuredGpus::groupOf(const Rank& rank, int32_t size) const {
  const std::vector<int32_t> sizes = groupSizes(numRanks());
  const auto found = std::find(sizes.begin(), sizes.end(), size);
  TRIREME_CHECK(found != sizes.end());
  const GroupKind kind = kSizeKinds[static_cast<size_t>(found - sizes.begin())];
  return rank.program.info.group[static_cast<size_t>(kind)];
}

// Every rank on its own thread. The first that fails ends the others' waits.
Status MeasuredGpus::onAll(const std::function<Status(Rank&)>& job) {
  threads_.run([&](int32_t index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    if (world_->failed()) return;
    const Status status = job(rank);
    if (status.ok()) return;
    if (rank.comm != nullptr)
      rank.comm->fail(status);
    else
      world_->fail(index, status);
  });
  return world_->failed() ? world_->failure() : Status();
}

Status MeasuredGpus::finish(Rank& rank) {
  const auto begin = std::chrono::steady_clock::now();
  rank.device->setWatch([&]() -> Status {
    if (rank.comm != nullptr) TRIREME_RETURN_IF_ERROR(rank.comm->poll());
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() < timing_.timeoutSeconds) return {};
    rank.device->abandon();
    return unavailable(fmt::format("{} does not answer: its work has not ended within {:.3g} s",
                                   rank.device->gpu().name(), timing_.timeoutSeconds));
  });
  const Status status = rank.device->finishStep();
  rank.device->setWatch(nullptr);
  return status;
}

// The first calls load code and choose algorithms.
Status MeasuredGpus::timeFirst(Rank& rank, const Work& work, Stream on) {
  constexpr int kCalls = 2;
  TRIREME_RETURN_IF_ERROR(rank.device->beginStep());
  for (int i = 0; i < kCalls; ++i) TRIREME_RETURN_IF_ERROR(work(rank));
  TRIREME_RETURN_IF_ERROR(finish(rank));
  TRIREME_RETURN_IF_ERROR(rank.device->beginStep());
  TRIREME_ASSIGN_OR_RETURN(const int32_t begin, rank.device->stamp(on));
  TRIREME_RETURN_IF_ERROR(work(rank));
  TRIREME_ASSIGN_OR_RETURN(const int32_t end, rank.device->stamp(on));
  TRIREME_RETURN_IF_ERROR(finish(rank));
  TRIREME_ASSIGN_OR_RETURN(const double started, rank.device->secondsOf(begin));
  TRIREME_ASSIGN_OR_RETURN(const double ended, rank.device->secondsOf(end));
  rank.once = ended - started;
  return {};
}

// Ranks that wait for each other begin apart, and lose one batch to that: the median does not.
Status MeasuredGpus::timeCalls(Rank& rank, const Work& work, Stream on, int64_t calls) {
  TRIREME_RETURN_IF_ERROR(rank.device->beginStep());
  std::vector<int32_t> stamps;
  for (int batch = 0; batch < timing_.repetitions; ++batch) {
    TRIREME_ASSIGN_OR_RETURN(stamps.emplace_back(), rank.device->stamp(on));
    for (int64_t i = 0; i < calls; ++i) TRIREME_RETURN_IF_ERROR(work(rank));
  }
  TRIREME_ASSIGN_OR_RETURN(stamps.emplace_back(), rank.device->stamp(on));
  TRIREME_RETURN_IF_ERROR(finish(rank));
  std::vector<double> perCall;
  for (size_t i = 0; i + 1 < stamps.size(); ++i) {
    TRIREME_ASSIGN_OR_RETURN(const double begin, rank.device->secondsOf(stamps[i]));
    TRIREME_ASSIGN_OR_RETURN(const double end, rank.device->secondsOf(stamps[i + 1]));
    perCall.push_back((end - begin) / static_cast<double>(calls));
  }
  rank.perCall = median(perCall);
  return {};
}

Result<Seconds> MeasuredGpus::measure(const Work& work, int32_t numTimed,
                                      const std::function<Stream(const Rank&)>& on) {
  const auto isTimed = [&](const Rank& rank) { return rank.program.rank < numTimed; };
  const auto streamOf = [&](const Rank& rank) { return on ? on(rank) : Stream::kCompute; };
  TRIREME_RETURN_IF_ERROR(onAll([&](Rank& rank) {
    return isTimed(rank) ? timeFirst(rank, work, streamOf(rank)) : Status();
  }));
  double once = 0;
  for (const Rank& rank : ranks_)
    if (isTimed(rank)) once = std::max(once, rank.once);
  const double wanted = std::ceil(timing_.batch.count() / std::max(once, 1e-9));
  const auto calls =
      static_cast<int64_t>(std::clamp(wanted, 1.0, static_cast<double>(timing_.maxCalls)));
  TRIREME_RETURN_IF_ERROR(onAll([&](Rank& rank) {
    return isTimed(rank) ? timeCalls(rank, work, streamOf(rank), calls) : Status();
  }));
  double sum = 0;
  for (const Rank& rank : ranks_)
    if (isTimed(rank)) sum += rank.perCall;
  const Seconds mean(sum / numTimed);
  if (mean.count() > 0) return mean;
  return Error(
      internalError(fmt::format("{} says that a call took {:.3g} s", info_.name, mean.count())));
}

Result<Seconds> MeasuredGpus::segment(size_t index) {
  const program::Segment& segment = bundle_.program.segments[index];
  const int64_t setBytes = operandBytes(segment);
  const int64_t numSets =
      std::clamp<int64_t>(std::min(tensorBytes_, kSetsBytes) / setBytes, 1, kMaxSets);
  const auto operandsOf = [&](const Rank& rank, int64_t set) {
    char* place = tensors(rank) + set * setBytes;
    std::vector<void*> operands;
    for (const program::OperandType& type : segment.operands) {
      operands.push_back(place);
      place += aligned(type.bytes());
    }
    return operands;
  };
  TRIREME_RETURN_IF_ERROR(onAll([&](Rank& rank) -> Status {
    TRIREME_RETURN_IF_ERROR(chooseAlgorithms(rank, index, operandsOf(rank, 0)));
    return fill(rank, segment.operands.front().dtype, numSets * setBytes);
  }));
  std::vector<int64_t> next(ranks_.size(), 0);
  return measure(
      [&](Rank& rank) {
        int64_t& set = next[static_cast<size_t>(rank.program.rank)];
        const std::vector<void*> operands = operandsOf(rank, set);
        set = (set + 1) % numSets;
        return rank.device->runSegment(
            {static_cast<int32_t>(index), &rank.context, operands.data()});
      },
      numRanks());
}

// As a run does before its first step.
Status MeasuredGpus::chooseAlgorithms(Rank& rank, size_t index, std::vector<void*> operands) {
  constexpr uint8_t kFiller = 0x3c;  // a number near one in every type
  cuda::CudaRank& device = *rank.device;
  for (const cuda::MatmulCall& call :
       device.productsOf(static_cast<int32_t>(index), {std::move(operands)})) {
    TRIREME_ASSIGN_OR_RETURN(
        const cuda::TimedAlgorithm timed,
        cuda::timeFastest(device.gpu(), call, device.workspace(), device.stream(Stream::kCompute),
                          [&] { return device.occupy(kFiller); }));
    call.matmul->use(call.alignment, timed.algorithm);
  }
  return {};
}

Status MeasuredGpus::warmUp(size_t index) {
  const GpuTiming usual = timing_;
  timing_.batch = Seconds(0.1);
  const Result<Seconds> time = segment(index);
  timing_ = usual;
  return time.has_value() ? Status() : time.error();
}

Result<Seconds> MeasuredGpus::launch() { return segment(bundle_.program.segments.size() - 1); }

Result<MeasuredGpus::Traffic> MeasuredGpus::stream(GpuStream stream) {
  const int64_t usable = tensorBytes_ - kAlignment;  // the last is for sums
  const int64_t arrays = stream == GpuStream::kCopy ? 2 : stream == GpuStream::kAdamW ? 4 : 1;
  const int64_t bytes = usable / arrays / kAlignment * kAlignment;
  const auto squaresOf = [&](const Rank& rank) {
    return reinterpret_cast<double*>(tensors(rank) + usable / kAlignment * kAlignment);
  };
  Work work;
  double passes = 2;
  switch (stream) {
    case GpuStream::kCopy:
      work = [&](Rank& rank) {
        char* all = tensors(rank);
        return rank.device->copy(all + bytes, all, bytes, Stream::kCompute);
      };
      break;
    case GpuStream::kSumSquares:
      passes = 1;
      work = [&](Rank& rank) {
        const NormRow row{0, tensors(rank), bytes / 4};
        const BucketRows bucket{0, DType::kF32, {&row, 1}};
        return rank.device->sumSquares({&bucket, 1}, squaresOf(rank));
      };
      break;
    case GpuStream::kAdamW:
      passes = 7;
      work = [&](Rank& rank) {
        char* all = tensors(rank);
        AdamWCall call;
        call.step.learningRate = 1e-6;
        call.step.beta1 = 0.9, call.step.beta2 = 0.999, call.step.epsilon = 1e-8;
        call.squares = {squaresOf(rank), 0};
        AdamWArrays arrays;
        arrays.parameter = arrays.master = all;
        arrays.gradient = all + bytes;
        arrays.moment1 = all + 2 * bytes;
        arrays.moment2 = all + 3 * bytes;
        arrays.elements = bytes / 4;
        call.buckets = {&arrays, 1};
        return rank.device->adamW(call);
      };
  }
  TRIREME_ASSIGN_OR_RETURN(const Seconds time, measure(work, numRanks()));
  return Traffic{Bytes(passes * static_cast<double>(bytes)), time};
}

Result<Seconds> MeasuredGpus::exchange(Exchange exchange, int32_t groupSize, int64_t bytes) {
  TRIREME_CHECK(bytes <= tensorBytes_ && bytes % (4 * groupSize) == 0);
  const int64_t part = bytes / 4 / groupSize;
  const auto indexIn = [&](const Rank& rank) { return rank.program.rank % groupSize; };
  const auto mine = [&](Rank& rank) { return tensors(rank) + indexIn(rank) * part * 4; };
  switch (exchange) {
    case Exchange::kAllReduce:
      return measure(
          [&](Rank& rank) {
            return rank.comm->allReduce(groupOf(rank, groupSize), tensors(rank), bytes / 4,
                                        DType::kF32, program::ReduceOp::kMax);
          },
          numRanks());
    case Exchange::kAllGather:
      return measure(
          [&](Rank& rank) {
            return rank.comm->allGather(groupOf(rank, groupSize), mine(rank), tensors(rank), part,
                                        DType::kF32);
          },
          numRanks());
    case Exchange::kReduceScatter:
      return measure(
          [&](Rank& rank) {
            return rank.comm->reduceScatter(groupOf(rank, groupSize), tensors(rank), mine(rank),
                                            part, DType::kF32, program::ReduceOp::kMax);
          },
          numRanks());
    case Exchange::kSend:
      break;
  }
  const auto sends = [](const Rank& rank) { return rank.program.rank % 2 == 0; };
  return measure(
      [&](Rank& rank) -> Status {
        const int32_t peer = rank.program.rank ^ 1;
        if (sends(rank))
          return rank.comm->publish(Stream::kSendForward, peer, {}, tensors(rank), bytes);
        const Result<bool> received =
            rank.comm->receive(Stream::kRecvForward, peer, {}, tensors(rank), bytes);
        return received.has_value() ? Status() : received.error();
      },
      numRanks() / 2 * 2,
      [&](const Rank& rank) { return sends(rank) ? Stream::kSendForward : Stream::kRecvForward; });
}

}  // namespace trireme::runtime
