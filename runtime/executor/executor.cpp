#include "runtime/executor/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ir/program/walk.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {

using program::InstructionKind;
using program::Stream;

Executor::Executor(const ExecutorContext& context)
    : rank_(context.device->program()),
      context_(context),
      streams_(*context.device, *context.comm, context.trace),
      batches_(*context.device, *context.comm),
      lastDirection_(program::lastDirection(program::splitsBackward(*rank_.role))) {
  context_.comm->setProgress(&streams_);
  context_.device->setWatch([this] { return watchDevice(); });
  addresses_.resize(static_cast<size_t>(rank_.maxOperands));
  int64_t numLayers = std::max<int64_t>(1, rank_.program->numLayers);
  for (const program::Chunk& chunk : rank_.role->chunks) {
    numLayers = std::max<int64_t>(numLayers, chunk.firstLayer + chunk.numLayers);
    live_.emplace_back(static_cast<size_t>(std::max(1, chunk.numSlots)), uint8_t{0});
  }
  contexts_.resize(static_cast<size_t>(numLayers));
  buildNormRows();
  buildArrays();
}

Executor::~Executor() {
  context_.comm->setProgress(nullptr);
  context_.device->setWatch(nullptr);
}

char* Executor::operand(const Flat& instruction, int32_t i, int32_t repeat, int32_t slot) const {
  return rank_.operands[static_cast<size_t>(instruction.firstOperand + i)].at(repeat, slot);
}

// The layers outside of this rank's chunks are never asked for, except 0 ("outside the layers").
void Executor::fillKeys() {
  const auto fill = [&](int32_t layer) {
    program::KernelContext& context = contexts_[static_cast<size_t>(layer)];
    context.tpIndex = static_cast<uint64_t>(rank_.info.tpIndex);
    for (uint32_t stream = 0; stream < 8; ++stream)
      context.keys[stream] =
          makeRngKey(rank_.program->training.seed, static_cast<uint64_t>(step_),
                     static_cast<uint32_t>(layer), static_cast<RngStream>(stream));
  };
  fill(0);
  for (const program::Chunk& chunk : rank_.role->chunks)
    for (int32_t i = 0; i < chunk.numLayers; ++i) fill(chunk.firstLayer + i);
}

Status Executor::runStep(int64_t step, DataSource& data) {
  step_ = step;
  counters_ = {};
  if (context_.trace != nullptr) context_.trace->beginStep(step);
  fillKeys();
  TRIREME_RETURN_IF_ERROR(context_.device->beginStep());
  streams_.beginStep();
  TRIREME_RETURN_IF_ERROR(batches_.beginStep(step, data));
  passed_ = -1;
  for (const Task& task : rank_.role->tasks) TRIREME_RETURN_IF_ERROR(runTask(task));
  TRIREME_RETURN_IF_ERROR(streams_.drain());
  batches_.readAhead();
  if (const Status status = context_.device->finishStep(); !status.ok()) {
    // A fault that the device reports is one of what it was at.
    const bool isFault = status.code() == StatusCode::kInternal;
    return isFault ? status.withContext(streams_.describeStop()) : status;
  }
  return context_.trace == nullptr ? Status() : context_.trace->endStep(*context_.device);
}

// The time counts from the last instruction that was completed, so a step may take as long as it
// likes. A rank whose device waits for others gives them a tenth more, so that the first to
// complain is the one that the others wait for. After the failure of another rank the device still
// has its time to come to an end.
Status Executor::watchDevice() {
  if (Status status = context_.comm->poll(); !status.ok())
    return status.withContext(streams_.describeStop());
  if (const int64_t passed = streams_.numPassed(); passed != passed_) {
    passed_ = passed;
    passedSince_.restart();
    return {};
  }
  const double limit = (streams_.isHeldUpByOthers() ? 1.1 : 1) * context_.timeoutSeconds;
  if (std::chrono::duration<double>(passedSince_.waited()).count() <= limit) return {};
  const Status status =
      unavailable(fmt::format("{}: the device has not completed it in {:.3g} s{}",
                              streams_.describeStop(), limit, streams_.describeAwaited()));
  if (streams_.isHeldUpByOthers()) context_.comm->abort();
  context_.device->abandon();
  return status;
}

Status Executor::runTask(const Task& task) {
  trackLiveSlots(task, true);
  const FlatBody& body = rank_.bodies[static_cast<size_t>(task.body)];
  for (const Section& section : body.sections)
    TRIREME_RETURN_IF_ERROR(runSection(body, section, task));
  trackLiveSlots(task, false);
  return {};
}

Status Executor::runSection(const FlatBody& body, const Section& section, const Task& task) {
  const int32_t firstLayer =
      task.chunk >= 0 ? rank_.role->chunks[static_cast<size_t>(task.chunk)].firstLayer : 0;
  for (int32_t i = 0; i < section.count; ++i) {
    const int32_t repeat = section.reversed ? section.count - 1 - i : i;
    const int32_t layer = section.repeated ? firstLayer + repeat : -1;
    for (int32_t at = section.begin; at < section.end;) {
      const std::span<const Flat> run = runFrom(body, at, section.end);
      Status status = issue(run, task, section.repeated ? repeat : 0, layer);
      if (!status.ok())
        return status.withContext(describeInstruction(rank_, task, run.front(), layer));
      at += static_cast<int32_t>(run.size());
    }
  }
  return {};
}

Status Executor::enqueue(const Flat& instruction, const Task& task, int32_t repeat, int32_t layer) {
  QueuedInstruction entry{&instruction, &task, layer, nullptr, {}};
  if (isMessage(instruction.kind)) entry.address = operand(instruction, 0, repeat, task.slot);
  if (instruction.kind == InstructionKind::kWait)
    entry.awaited = streams_.mark(Streams::eventIndex(instruction.event, task.slot));
  return streams_.issue(entry);
}

Status Executor::issue(std::span<const Flat> run, const Task& task, int32_t repeat, int32_t layer) {
  for (const Flat& instruction : run) {
    if (context_.faults != nullptr) TRIREME_RETURN_IF_ERROR(injectFault(instruction, task, layer));
    ++counters_.instructions;
    count(instruction, task);
  }
  const Flat& first = run.front();
  if (first.kind != InstructionKind::kCompute)
    for (int32_t i = 0; i < first.numOperands; ++i)
      context_.device->expose(operand(first, i, repeat, task.slot));
  if (isMessage(first.kind) || isMessageStream(first.stream))
    return enqueue(first, task, repeat, layer);
  TRIREME_RETURN_IF_ERROR(streams_.advance());
  int32_t begin = 0;
  if (context_.trace != nullptr) {
    TRIREME_ASSIGN_OR_RETURN(begin, context_.device->stamp(first.stream));
  }
  TRIREME_RETURN_IF_ERROR(execute(run, task, repeat, layer));
  TRIREME_RETURN_IF_ERROR(streams_.handedOver(run, task, layer));
  if (context_.trace != nullptr) {
    TRIREME_ASSIGN_OR_RETURN(const int32_t end, context_.device->stamp(first.stream));
    for (const Flat& instruction : run) {
      context_.trace->record(instruction, task, layer, begin, end);
      begin = end;  // the first shows the time of all
    }
  }
  const int32_t event = Streams::eventIndex(first.event, task.slot);
  if (event < 0 || first.kind == InstructionKind::kWait) return {};
  return streams_.signal(event, first.stream);
}

Status Executor::execute(std::span<const Flat> run, const Task& task, int32_t repeat,
                         int32_t layer) {
  const Flat& instruction = run.front();
  switch (instruction.kind) {
    case InstructionKind::kCompute:
      return compute(instruction, task, repeat, layer);
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return collective(instruction, repeat, task.slot);
    case InstructionKind::kLoadBatch:
      return batches_.load();
    case InstructionKind::kZero:
      return context_.device->zero(operand(instruction, 0, repeat, task.slot), instruction.bytes);
    case InstructionKind::kSumSquares:
      return sumSquares(run, repeat, task.slot);
    case InstructionKind::kAdamW:
      return adamWStep(run, repeat, task.slot);
    case InstructionKind::kUpdateLossScale:
      return updateLossScale(instruction, repeat, task.slot);
    case InstructionKind::kWait:
      return streams_.waitFor(Streams::eventIndex(instruction.event, task.slot),
                              instruction.stream);
    default:
      return internalError("not an instruction that is executed when it is issued");
  }
}

Status Executor::compute(const Flat& instruction, const Task& task, int32_t repeat, int32_t layer) {
  program::KernelContext& kernel = contexts_[static_cast<size_t>(std::max(layer, 0))];
  kernel.firstSample = static_cast<uint64_t>(
      firstSample(rank_.program->training, rank_.info.dpIndex, task.microbatch));
  for (int32_t i = 0; i < instruction.numOperands; ++i)
    addresses_[static_cast<size_t>(i)] = operand(instruction, i, repeat, task.slot);
  return context_.device->runSegment({instruction.segment, &kernel, addresses_.data()});
}

Status Executor::collective(const Flat& instruction, int32_t repeat, int32_t slot) {
  Communicator& comm = *context_.comm;
  const GroupCall group{instruction.group, instruction.stream};
  char* first = operand(instruction, 0, repeat, slot);
  if (instruction.kind == InstructionKind::kAllReduce)
    return comm.allReduce(group, first, instruction.elements, instruction.type, instruction.reduce);
  char* second = operand(instruction, 1, repeat, slot);
  if (instruction.kind == InstructionKind::kReduceScatter)
    return comm.reduceScatter(group, first, second, instruction.elements, instruction.type,
                              instruction.reduce);
  return comm.allGather(group, first, second, instruction.elements, instruction.type);
}

Status Executor::injectFault(const Flat& instruction, const Task& task, int32_t layer) {
  switch (context_.faults->before(rank_.rank, task, instruction.index, layer)) {
    case Fault::kNone:
      return {};
    case Fault::kFail:
      return unavailable(fmt::format("rank {} was stopped", rank_.rank));
    case Fault::kStall:
      break;
  }
  while (!context_.comm->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return unavailable(fmt::format("rank {} was stalled", rank_.rank));
}

void Executor::count(const Flat& instruction, const Task& task) {
  switch (instruction.kind) {
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      if (instruction.groupSize == 1) return;
      [[fallthrough]];
    case InstructionKind::kSend:
    case InstructionKind::kRecv:
      break;
    default:
      return;
  }
  CommCount& total = counters_.at(instruction.kind, instruction.groupKind, task.direction);
  ++total.calls;
  total.bytes += instruction.bytes;
}

void Executor::trackLiveSlots(const Task& task, bool before) {
  if (task.chunk < 0) return;
  uint8_t& live = live_[static_cast<size_t>(task.chunk)][static_cast<size_t>(task.slot)];
  const bool becomes = task.direction == program::Direction::kForward && before;
  const bool ends = task.direction == lastDirection_ && !before;
  if (becomes && live == 0) {
    live = 1;
    counters_.peakLiveSlots = std::max(counters_.peakLiveSlots, ++numLive_);
  } else if (ends && live == 1) {
    live = 0;
    --numLive_;
  }
}

}  // namespace trireme::runtime
