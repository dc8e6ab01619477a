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
  for (StreamHandle& stream : streams_)
    TRIREME_RETURN_IF_ERROR(
        check(api_.createStream(&stream, kStreamNonBlocking), "creating a stream"));
  TRIREME_RETURN_IF_ERROR(openProgress());
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer arena,
                           allocate(image_.role->arenaBytes, "its arena"));
  TRIREME_ASSIGN_OR_RETURN(
      program_, resolveRank(*image_.program, image_.rank, reinterpret_cast<char*>(arena)));
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer factors,
                           allocate(sizeof(AdamWFactors), "the optimizer's factors"));
  factors_ = reinterpret_cast<AdamWFactors*>(factors);
  if (const int32_t workspace = program_.role->workspace; workspace >= 0)
    workspace_ = alignedWorkspace(program_.address(workspace),
                                  program_.role->buffers[static_cast<size_t>(workspace)].bytes());

  TRIREME_ASSIGN_OR_RETURN(cublasLt_, CublasLt::create(gpu_.cublasLt()));
  TRIREME_ASSIGN_OR_RETURN(squaresRows_, gpu_.kernel("squares_rows"));
  TRIREME_ASSIGN_OR_RETURN(adamwScale_, gpu_.kernel("adamw_scale"));
  TRIREME_ASSIGN_OR_RETURN(updateLossScale_, gpu_.kernel("update_loss_scale"));
  for (DType type : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16}) {
    TRIREME_ASSIGN_OR_RETURN(adamw_[type], gpu_.kernel(fmt::format("adamw_{}", dtypeName(type))));
  }
  segments_.resize(bundle.program.segments.size());
  for (size_t i = 0; i < segments_.size(); ++i)
    TRIREME_RETURN_IF_ERROR(loadSegment(static_cast<int32_t>(i),
                                        bundle.kernels.empty() ? nullptr : &bundle.kernels[i]));
  openGraphs(bundle, graphs);
  return fillArena(0);
}

Status CudaRank::fillArena(uint8_t byte) {
  TRIREME_RETURN_IF_ERROR(
      check(api_.fill(pointer(program_.arena), byte, static_cast<size_t>(program_.role->arenaBytes),
                      compute()),
            "filling the arena"));
  return check(api_.synchronize(compute()), "filling the arena");
}

std::vector<MatmulCall> CudaRank::products() const {
  std::vector<MatmulCall> products;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::vector<std::vector<void*>> calls = callsOf(program_, static_cast<int32_t>(i));
    if (calls.empty()) continue;
    for (const Step& step : segments_[i])
      if (const auto* matmul = std::get_if<std::unique_ptr<Matmul>>(&step))
        products.push_back({matmul->get(), alignmentOf(**matmul, calls), calls.front()});
  }
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
  if (gpu_.isAbandoned() || !gpu_.makeCurrent().ok()) return;
  graphs_.clear();
  for (EventHandle event : events_) static_cast<void>(api_.destroyEvent(event));
  for (EventHandle event : stamps_) static_cast<void>(api_.destroyEvent(event));
  for (StreamHandle stream : streams_)
    if (stream != nullptr) static_cast<void>(api_.destroyStream(stream));
  if (passed_ != nullptr) static_cast<void>(api_.releaseHost(passed_));
  for (void* data : uploads_) static_cast<void>(api_.releaseHost(data));
  for (const auto& [data, count] : staging_) static_cast<void>(api_.releaseHost(data));
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

// Without waiting, in the first step: by pinned memory that stays.
Result<void*> CudaRank::upload(const void* data, int64_t bytes, const char* what) {
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer to, allocate(bytes, what));
  if (bytes == 0) return reinterpret_cast<void*>(to);
  void* pinned = nullptr;
  TRIREME_RETURN_IF_ERROR(check(api_.allocateHost(&pinned, static_cast<size_t>(bytes), 0), what));
  uploads_.push_back(pinned);
  std::memcpy(pinned, data, static_cast<size_t>(bytes));
  TRIREME_RETURN_IF_ERROR(
      check(api_.copyToDevice(to, pinned, static_cast<size_t>(bytes), compute()), what));
  return reinterpret_cast<void*>(to);
}

Status CudaRank::addStep(const program::Segment& segment, const program::SegmentOp& op,
                         std::vector<Step>& steps) {
  if (isMatmul(op.kind)) {
    TRIREME_ASSIGN_OR_RETURN(auto matmul, Matmul::create(*cublasLt_, op, segment.operands));
    steps.emplace_back(std::move(matmul));
    return {};
  }
  TRIREME_ASSIGN_OR_RETURN(
      OpLaunch launch,
      OpLaunch::create(gpu_, op, segment.operands, image_.info.tpIndex, program_.lossScaling()));
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
    if (const auto chain = chainFrom(segment, list, i)) {
      TRIREME_ASSIGN_OR_RETURN(const bool runsAsOne, addChain(index, list, *chain));
      if (runsAsOne) {
        for (const size_t step : chain->steps) isDone[step] = true;
        continue;
      }
    }
    TRIREME_RETURN_IF_ERROR(
        addStep(segment, *list[i].op, steps).withContext("segment " + segment.name));
  }
  return {};
}

void CudaRank::openGraphs(const program::Bundle& bundle, bool enabled) {
  const SegmentPlace place{&gpu_, compute(), workspace_};
  for (size_t i = 0; i < segments_.size(); ++i)
    graphs_.emplace_back(place, bundle.program.segments[i], segments_[i], enabled);
}

Result<bool> CudaRank::addChain(int32_t index, const std::vector<SegmentStep>& list,
                                const MatmulChain& chain) {
  const program::Segment& segment = image_.program->segments[static_cast<size_t>(index)];
  const std::vector<std::vector<void*>> calls = callsOf(program_, index);
  if (calls.empty()) return false;
  for (const std::vector<void*>& addresses : calls)
    if (!isApart(chain, segment, list, addresses)) return false;
  TRIREME_ASSIGN_OR_RETURN(auto matmul, Matmul::create(*cublasLt_, *list[chain.steps.front()].op,
                                                       segment.operands, chain.epilogue));
  if (!matmul->candidates(alignmentOf(*matmul, calls), workspace_.bytes, 1).has_value())
    return false;
  segments_[static_cast<size_t>(index)].emplace_back(std::move(matmul));
  return true;
}

Status CudaRank::beginStep() {
  eventsUsed_ = 0;
  stagingUsed_ = 0;
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
Status CudaRank::mark(Stream on) {
  const auto index = static_cast<size_t>(on);
  return check(api_.writeValue(stream(on), pointer(passed_ + index), ++marks_[index], 0),
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

Result<int32_t*> CudaRank::stageTokens(int32_t*, int64_t count) {
  if (stagingUsed_ == staging_.size()) {
    void* data = nullptr;
    TRIREME_RETURN_IF_ERROR(
        check(api_.allocateHost(&data, static_cast<size_t>(count) * sizeof(int32_t), 0),
              "allocating pinned memory for tokens"));
    staging_.emplace_back(static_cast<int32_t*>(data), count);
  }
  const auto& [data, size] = staging_[stagingUsed_++];
  if (size < count) return Error(internalError("a step that loads other batches than the first"));
  return data;
}

Status CudaRank::sendTokens(int32_t* target, const int32_t* staged, int64_t count) {
  return check(api_.copyToDevice(pointer(target), staged,
                                 static_cast<size_t>(count) * sizeof(int32_t), compute()),
               "sending tokens");
}

Result<CudaRank::SquaresTable> CudaRank::buildTable(std::span<const NormRow> rows, DType type) {
  std::vector<SquaresPiece> pieces;
  std::vector<SquaresRow> table;
  for (const NormRow& row : rows) {
    const auto first = static_cast<int64_t>(pieces.size());
    for (int64_t done = 0; done < row.elements; done += kSquaresPiece)
      pieces.push_back(
          {row.data + done * byteSize(type), std::min(kSquaresPiece, row.elements - done)});
    table.push_back({first, static_cast<int64_t>(pieces.size()) - first, row.logicalIndex});
  }
  const auto bytesOf = [](const auto& list) {
    return static_cast<int64_t>(list.size() * sizeof(list[0]));
  };
  SquaresTable result;
  TRIREME_ASSIGN_OR_RETURN(void* onPieces,
                           upload(pieces.data(), bytesOf(pieces), "the norm's pieces"));
  TRIREME_ASSIGN_OR_RETURN(void* onRows, upload(table.data(), bytesOf(table), "the norm's rows"));
  TRIREME_ASSIGN_OR_RETURN(
      const DevicePointer partial,
      allocate(static_cast<int64_t>(pieces.size() * sizeof(double)), "the norm's sums"));
  result.args.pieces = static_cast<const SquaresPiece*>(onPieces);
  result.args.numPieces = static_cast<int64_t>(pieces.size());
  result.args.rows = static_cast<const SquaresRow*>(onRows);
  result.args.numRows = static_cast<int64_t>(table.size());
  result.args.partial = reinterpret_cast<double*>(partial);
  TRIREME_ASSIGN_OR_RETURN(result.pieces,
                           gpu_.kernel(fmt::format("squares_pieces_{}", dtypeName(type))));
  return result;
}

Status CudaRank::sumSquares(int32_t bucket, std::span<const NormRow> rows, DType type,
                            double* squares) {
  constexpr int64_t kWarp = 32;
  if (!tables_.contains(bucket)) {
    TRIREME_ASSIGN_OR_RETURN(tables_[bucket], buildTable(rows, type));
  }
  SquaresTable& table = tables_[bucket];
  table.args.squares = squares;
  TRIREME_RETURN_IF_ERROR(
      gpu_.launch(launchOf(table.pieces, &table.args, table.args.numPieces * kWarp), compute()));
  return gpu_.launch(launchOf(squaresRows_, &table.args, table.args.numRows * kWarp), compute());
}

Status CudaRank::adamW(const AdamWCall& call) {
  const AdamWArrays& arrays = call.arrays;
  const bool inF64 = arrays.stateType == DType::kF64;
  if (inF64 != (arrays.computeType == DType::kF64) || !adamw_.contains(arrays.computeType))
    return invalidArgument(fmt::format("no AdamW for state in {} and parameters in {}",
                                       dtypeName(arrays.stateType), dtypeName(arrays.computeType)));
  AdamWArgs args{};
  args.parameter = arrays.parameter;
  args.master = arrays.master;
  args.gradient = arrays.gradient;
  args.moment1 = arrays.moment1;
  args.moment2 = arrays.moment2;
  args.elements = arrays.elements;
  args.squares = call.squares.data;
  args.numSquares = call.squares.count;
  args.lossScaling = reinterpret_cast<const double*>(call.lossScaling);
  args.factors = factors_;
  args.clipNorm = call.clipNorm;
  args.learningRate = call.step.learningRate;
  args.beta1 = call.step.beta1;
  args.beta2 = call.step.beta2;
  args.epsilon = call.step.epsilon;
  args.weightDecay = call.step.weightDecay;
  args.correct1 = 1 / (1 - powerOf(call.step.beta1, call.step.number));
  args.correct2 = 1 / (1 - powerOf(call.step.beta2, call.step.number));
  constexpr int64_t kWarp = 32;
  TRIREME_RETURN_IF_ERROR(gpu_.launch(launchOf(adamwScale_, &args, kWarp), compute()));
  return gpu_.launch(launchOf(adamw_[arrays.computeType], &args, arrays.elements), compute());
}

Status CudaRank::updateLossScale(const LossScaleUpdate& update) {
  LossScaleArgs args{};
  args.squares = update.squares.data;
  args.numSquares = update.squares.count;
  args.lossScaling = reinterpret_cast<double*>(update.lossScaling);
  args.window = static_cast<double>(update.training->lossScaleWindow);
  args.minimum = update.training->minLossScale;
  constexpr int64_t kWarp = 32;
  return gpu_.launch(launchOf(updateLossScale_, &args, kWarp), compute());
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
