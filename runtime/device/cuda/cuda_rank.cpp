#include "runtime/device/cuda/cuda_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "ir/base/format.h"
#include "runtime/device/cuda/segment_calls.h"

namespace trireme::runtime::cuda {
namespace {

using program::Stream;

DevicePointer pointer(const void* data) { return reinterpret_cast<uintptr_t>(data); }

MatmulAlignment alignmentOf(const Matmul& matmul, const std::vector<std::vector<void*>>& calls) {
  MatmulAlignment alignment;
  for (const std::vector<void*>& addresses : calls)
    alignment = leastOf(alignment, matmul.alignmentOf(addresses.data()));
  return alignment;
}

}  // namespace

CudaRank::CudaRank(const Gpu& gpu, const RankProgram& image)
    : gpu_(gpu), api_(gpu.driver()), image_(image) {}

Result<std::unique_ptr<CudaRank>> CudaRank::create(const Gpu& gpu, const program::Bundle& bundle,
                                                   const RankProgram& image, bool graphs) {
  std::unique_ptr<CudaRank> rank(new CudaRank(gpu, image));
  TRIREME_RETURN_IF_ERROR(
      rank->open(bundle, graphs).withContext(fmt::format("rank {} on {}", image.rank, gpu.name())));
  return rank;
}

Status CudaRank::open(const program::Bundle& bundle, bool graphs) {
  TRIREME_RETURN_IF_ERROR(gpu_.makeCurrent());
  TRIREME_RETURN_IF_ERROR(openStreams());
  TRIREME_RETURN_IF_ERROR(openProgress());
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer arena,
                           allocate(image_.role->arenaBytes, "its arena"));
  TRIREME_ASSIGN_OR_RETURN(
      program_, resolveRank(*image_.program, image_.rank, reinterpret_cast<char*>(arena)));
  if (const int32_t workspace = program_.role->workspace; workspace >= 0)
    workspace_ = alignedWorkspace(program_.address(workspace),
                                  program_.role->buffers[static_cast<size_t>(workspace)].bytes());

  TRIREME_ASSIGN_OR_RETURN(cublasLt_, CublasLt::create(gpu_.cublasLt()));
  TRIREME_RETURN_IF_ERROR(openOptimizer());
  segments_.resize(bundle.program.segments.size());
  for (size_t i = 0; i < segments_.size(); ++i)
    TRIREME_RETURN_IF_ERROR(loadSegment(static_cast<int32_t>(i),
                                        bundle.kernels.empty() ? nullptr : &bundle.kernels[i]));
  openGraphs(bundle, graphs);
  return fillArena(0);
}

// Blocks of communication go before those of computation: there are few of them, and others wait
// for them.
Status CudaRank::openStreams() {
  int least = 0, greatest = 0;
  TRIREME_RETURN_IF_ERROR(check(api_.priorities(&least, &greatest), "asking for priorities"));
  for (size_t i = 0; i < streams_.size(); ++i) {
    const bool computes = static_cast<program::Stream>(i) == program::Stream::kCompute;
    TRIREME_RETURN_IF_ERROR(
        check(api_.createStream(&streams_[i], kStreamNonBlocking, computes ? least : greatest),
              "creating a stream"));
  }
  return {};
}

Status CudaRank::fillArena(uint8_t byte) {
  TRIREME_RETURN_IF_ERROR(
      check(api_.fill(pointer(program_.arena), byte, static_cast<size_t>(program_.role->arenaBytes),
                      compute()),
            "filling the arena"));
  return check(api_.synchronize(compute()), "filling the arena");
}

Status CudaRank::occupy(uint8_t byte) {
  constexpr int64_t kBytes = int64_t{512} << 20;  // 0.2 ms at 2.5 TB/s
  return check(
      api_.fill(pointer(program_.arena), byte,
                static_cast<size_t>(std::min(kBytes, program_.role->arenaBytes)), compute()),
      "filling the arena");
}

std::vector<MatmulCall> CudaRank::products() const {
  std::vector<MatmulCall> products;
  for (int32_t i = 0; i < static_cast<int32_t>(segments_.size()); ++i)
    for (MatmulCall& call : productsOf(i, callsOf(program_, i)))
      products.push_back(std::move(call));
  return products;
}

std::vector<MatmulCall> CudaRank::productsOf(int32_t segment,
                                             const std::vector<std::vector<void*>>& calls) const {
  std::vector<MatmulCall> products;
  if (calls.empty()) return products;
  for (const Step& step : segments_[static_cast<size_t>(segment)])
    if (const auto* matmul = std::get_if<std::unique_ptr<Matmul>>(&step))
      products.push_back({matmul->get(), alignmentOf(**matmul, calls), calls.front()});
  return products;
}

// Whoever waits for a GPU that does not come to its end waits for ever, and what it uses must stay.
void CudaRank::quiesce() {
  constexpr auto kPatience = std::chrono::seconds(10);
  if (gpu_.isAbandoned() || !gpu_.makeCurrent().ok()) return;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  watch_ = [deadline] {
    return std::chrono::steady_clock::now() < deadline ? Status() : unavailable("it goes on");
  };
  for (StreamHandle stream : streams_)
    if (stream != nullptr && waitFor(stream, "ending").code() == StatusCode::kUnavailable) {
      gpu_.abandon();
      return;
    }
}

CudaRank::~CudaRank() {
  quiesce();
  if (gpu_.isAbandoned() && cublasLt_ != nullptr) cublasLt_->abandon();
  if (gpu_.isAbandoned() || !gpu_.makeCurrent().ok()) return;
  graphs_.clear();
  for (EventHandle event : events_) static_cast<void>(api_.destroyEvent(event));
  for (EventHandle event : stamps_) static_cast<void>(api_.destroyEvent(event));
  for (StreamHandle stream : streams_)
    if (stream != nullptr) static_cast<void>(api_.destroyStream(stream));
  if (passed_ != nullptr) static_cast<void>(api_.releaseHost(passed_));
  for (void* data : hostBlocks_) static_cast<void>(api_.releaseHost(data));
  for (const Block& block : blocks_) static_cast<void>(api_.release(block.data));
}

Status CudaRank::check(int error, const char* what) const {
  return error == 0 ? Status() : driverStatus(api_, error, what);
}

Result<DevicePointer> CudaRank::allocate(int64_t bytes, const char* what) {
  Block block;
  block.bytes = std::max<int64_t>(bytes, 1);
  const int error = api_.allocate(&block.data, static_cast<size_t>(block.bytes));
  if (error != 0)
    return Error(driverStatus(
        api_, error,
        fmt::format("allocating {} of {}", formatBytes(Bytes(static_cast<double>(bytes))), what)));
  blocks_.push_back(block);
  return block.data;
}

Result<char*> CudaRank::block(int64_t bytes, const char* what) {
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer data, allocate(bytes, what));
  return reinterpret_cast<char*>(data);
}

Result<void*> CudaRank::allocateHost(int64_t bytes, const char* what) {
  void* pinned = nullptr;
  TRIREME_RETURN_IF_ERROR(check(api_.allocateHost(&pinned, static_cast<size_t>(bytes), 0), what));
  hostBlocks_.push_back(pinned);
  return pinned;
}

// Without waiting, in the first step: by pinned memory that stays.
Result<void*> CudaRank::upload(const void* data, int64_t bytes, const char* what) {
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer to, allocate(bytes, what));
  if (bytes == 0) return reinterpret_cast<void*>(to);
  TRIREME_ASSIGN_OR_RETURN(void* const pinned, allocateHost(bytes, what));
  std::memcpy(pinned, data, static_cast<size_t>(bytes));
  TRIREME_RETURN_IF_ERROR(
      check(api_.copyToDevice(to, pinned, static_cast<size_t>(bytes), compute()), what));
  return reinterpret_cast<void*>(to);
}

Status CudaRank::addStep(int32_t index, const program::SegmentOp& op) {
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  std::vector<Step>& steps = segments_[static_cast<size_t>(index)];
  if (isMatmul(op.kind)) {
    TRIREME_ASSIGN_OR_RETURN(auto matmul, Matmul::create(*cublasLt_, op, segment.operands));
    steps.emplace_back(std::move(matmul));
    return {};
  }
  TRIREME_ASSIGN_OR_RETURN(OpLaunch launch,
                           OpLaunch::create(gpu_, op, segment.operands, image_.info.tpIndex,
                                            OpPlace{program_.lossScaling(), workspace_}));
  for (const std::vector<void*>& addresses : callsOf(program_, index))
    TRIREME_RETURN_IF_ERROR(
        launch.checkAlignment(addresses.data()).withContext(program::opName(op.kind)));
  steps.emplace_back(std::move(launch));
  return {};
}

Status CudaRank::loadSegment(int32_t index, const program::CompiledSegment* compiled) {
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  std::vector<Step>& steps = segments_[static_cast<size_t>(index)];
  const std::vector<SegmentStep> list = stepsOf(segment, compiled);
  std::vector<bool> isDone(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (isDone[i]) continue;
    if (list[i].generated != nullptr) {
      TRIREME_ASSIGN_OR_RETURN(GeneratedLaunch launch,
                               GeneratedLaunch::create(gpu_, *list[i].generated));
      steps.emplace_back(std::move(launch));
      continue;
    }
    TRIREME_ASSIGN_OR_RETURN(const std::vector<size_t> merged, addMerged(index, list, i));
    for (const size_t step : merged) isDone[step] = true;
    if (!merged.empty()) continue;
    TRIREME_RETURN_IF_ERROR(addStep(index, *list[i].op).withContext("segment " + segment.name));
  }
  return {};
}

void CudaRank::openGraphs(const program::Bundle& bundle, bool enabled) {
  const SegmentPlace place{&gpu_, compute(), workspace_};
  for (size_t i = 0; i < segments_.size(); ++i)
    graphs_.emplace_back(place, bundle.program.segments[i], segments_[i], enabled);
}

Result<std::vector<size_t>> CudaRank::addMerged(int32_t index, const std::vector<SegmentStep>& list,
                                                size_t first) {
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  if (const auto chain = chainFrom(segment, list, first)) {
    TRIREME_ASSIGN_OR_RETURN(const bool runsAsOne, addChain(index, list, *chain));
    if (runsAsOne) return chain->steps;
  }
  const auto loss = lossChainFrom(list, first);
  if (!loss || !mayMerge(index, list, loss->merged)) return std::vector<size_t>();
  TRIREME_ASSIGN_OR_RETURN(OpLaunch launch,
                           OpLaunch::create(gpu_, *loss, segment.operands, image_.info.tpIndex));
  segments_[static_cast<size_t>(index)].emplace_back(std::move(launch));
  return loss->merged.steps;
}

// For all calls; a segment that is never called stays as it is.
bool CudaRank::mayMerge(int32_t index, const std::vector<SegmentStep>& list,
                        const MergedSteps& merged) const {
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  const std::vector<std::vector<void*>> calls = callsOf(program_, index);
  return !calls.empty() && std::all_of(calls.begin(), calls.end(), [&](const auto& addresses) {
    return isApart(merged, segment, list, addresses);
  });
}

Result<bool> CudaRank::addChain(int32_t index, const std::vector<SegmentStep>& list,
                                const MatmulChain& chain) {
  if (!mayMerge(index, list, mergedSteps(chain, list))) return false;
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  const std::vector<std::vector<void*>> calls = callsOf(program_, index);
  TRIREME_ASSIGN_OR_RETURN(auto matmul, Matmul::create(*cublasLt_, *list[chain.steps.front()].op,
                                                       segment.operands, chain.epilogue));
  if (!matmul->candidates(alignmentOf(*matmul, calls), workspace_.bytes, 1).has_value())
    return false;
  segments_[static_cast<size_t>(index)].emplace_back(std::move(matmul));
  return true;
}

Status CudaRank::beginStep() {
  eventsUsed_ = 0;
  stampsUsed_ = 0;
  marks_ = {};
  std::fill_n(passed_, program::kNumStreams, 0u);  // the streams are idle
  return {};
}

Status CudaRank::waitFor(StreamHandle stream, const char* what) const {
  constexpr auto kPause = std::chrono::microseconds(20);
  while (true) {
    const int state = api_.queryStream(stream);
    if (state != kNotReady) return check(state, what);
    if (watch_ != nullptr) TRIREME_RETURN_IF_ERROR(watch_());
    std::this_thread::sleep_for(kPause);
  }
}

Status CudaRank::finishStep() {
  TRIREME_RETURN_IF_ERROR(eventFailure_);
  for (StreamHandle stream : streams_)
    TRIREME_RETURN_IF_ERROR(waitFor(stream, "finishing the step"));
  for (SegmentGraphs& graphs : graphs_) TRIREME_RETURN_IF_ERROR(graphs.capture());
  return {};
}

Status CudaRank::openProgress() {
  void* data = nullptr;
  TRIREME_RETURN_IF_ERROR(
      check(api_.allocateHost(&data, sizeof(uint32_t) * program::kNumStreams, 0),
            "allocating pinned memory for its progress"));
  passed_ = static_cast<uint32_t*>(data);
  std::fill_n(passed_, program::kNumStreams, 0u);
  return {};
}

// Pinned memory has one address on both sides (CUDA's unified addressing).
Status CudaRank::mark(Stream on, int64_t numInstructions) {
  const auto index = static_cast<size_t>(on);
  marks_[index] += static_cast<uint32_t>(numInstructions);
  return check(api_.writeValue(stream(on), pointer(passed_ + index), marks_[index], 0),
               "noting its progress");
}

int64_t CudaRank::passed(Stream on) const {
  return std::atomic_ref(passed_[static_cast<size_t>(on)]).load(std::memory_order_acquire);
}

// The streams are idle when a step begins, so the first stamp is passed at once: what its event
// says is what the host's clock says now.
Result<int32_t> CudaRank::stamp(Stream on) {
  if (stampsUsed_ == stamps_.size()) {
    EventHandle event = nullptr;
    TRIREME_RETURN_IF_ERROR(check(api_.createEvent(&event, 0), "creating an event"));
    stamps_.push_back(event);
  }
  TRIREME_RETURN_IF_ERROR(
      check(api_.recordEvent(stamps_[stampsUsed_], stream(on)), "recording an event"));
  if (stampsUsed_ == 0)
    firstStampSeconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return static_cast<int32_t>(stampsUsed_++);
}

Result<double> CudaRank::secondsOf(int32_t stamp) const {
  float milliseconds = 0;
  TRIREME_RETURN_IF_ERROR(
      check(api_.elapsedTime(&milliseconds, stamps_.front(), stamps_[static_cast<size_t>(stamp)]),
            "asking for a time"));
  return firstStampSeconds_ + 1e-3 * static_cast<double>(milliseconds);
}

Status CudaRank::runSegment(const SegmentCall& call) {
  return graphs_[static_cast<size_t>(call.segment)].run(*call.context, call.operands);
}

Status CudaRank::zero(void* data, int64_t bytes) {
  return check(api_.fill(pointer(data), 0, static_cast<size_t>(bytes), compute()), "zeroing");
}

Result<int32_t*> CudaRank::stagingFor(int32_t*, int64_t count) {
  TRIREME_ASSIGN_OR_RETURN(void* const data,
                           allocateHost(count * static_cast<int64_t>(sizeof(int32_t)),
                                        "allocating pinned memory for tokens"));
  return static_cast<int32_t*>(data);
}

Status CudaRank::sendTokens(int32_t* target, const int32_t* staged, int64_t count) {
  return check(api_.copyToDevice(pointer(target), staged,
                                 static_cast<size_t>(count) * sizeof(int32_t), compute()),
               "sending tokens");
}

int32_t CudaRank::newEvent() {
  if (eventsUsed_ == events_.size()) {
    EventHandle event = nullptr;
    eventFailure_ = check(api_.createEvent(&event, kEventDisableTiming), "creating an event");
    if (!eventFailure_.ok()) return -1;
    events_.push_back(event);
  }
  return static_cast<int32_t>(eventsUsed_++);
}

Status CudaRank::record(int32_t event, Stream on) {
  TRIREME_RETURN_IF_ERROR(eventFailure_);
  return check(api_.recordEvent(eventHandle(event), stream(on)), "recording an event");
}

Status CudaRank::wait(int32_t event, Stream on) {
  return event < 0 ? Status() : waitForHandle(eventHandle(event), on);
}

Status CudaRank::waitForHandle(EventHandle event, Stream on) {
  return check(api_.waitEvent(stream(on), event, 0), "waiting for an event");
}

Status CudaRank::copy(void* to, const void* from, int64_t bytes, Stream on) {
  if (to == from || bytes == 0) return {};
  return check(
      api_.copyOnDevice(pointer(to), pointer(from), static_cast<size_t>(bytes), stream(on)),
      "copying");
}

// In pieces as long as the distance, none of which overlaps itself, in the order that reads each
// before it is overwritten.
Status CudaRank::move(void* to, const void* from, int64_t bytes, Stream on) {
  const int64_t distance = static_cast<char*>(to) - static_cast<const char*>(from);
  const int64_t piece = distance < 0 ? -distance : distance;
  if (piece == 0) return {};
  const int64_t pieces = (bytes + piece - 1) / piece;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = (distance < 0 ? i : pieces - 1 - i) * piece;
    TRIREME_RETURN_IF_ERROR(copy(static_cast<char*>(to) + begin,
                                 static_cast<const char*>(from) + begin,
                                 std::min(piece, bytes - begin), on));
  }
  return {};
}

DevicePointer CudaRank::onDevice(const void* data) const {
  return pointer(program_.arena + (static_cast<const char*>(data) - image_.arena));
}

Status CudaRank::fetch(void* data, int64_t bytes) {
  TRIREME_RETURN_IF_ERROR(gpu_.makeCurrent());
  TRIREME_RETURN_IF_ERROR(check(
      api_.copyToHost(data, onDevice(data), static_cast<size_t>(bytes), compute()), "reading"));
  return check(api_.synchronize(compute()), "reading");
}

Status CudaRank::store(const void* data, int64_t bytes) {
  TRIREME_RETURN_IF_ERROR(gpu_.makeCurrent());
  TRIREME_RETURN_IF_ERROR(check(
      api_.copyToDevice(onDevice(data), data, static_cast<size_t>(bytes), compute()), "writing"));
  return check(api_.synchronize(compute()), "writing");
}

}  // namespace trireme::runtime::cuda
