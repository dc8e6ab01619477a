// One rank on a GPU: an arena, a stream of the GPU per stream of the program, events, kernels.
//
// Nothing inside a step blocks the host or allocates after the first step: what a step needs once
// per call (events) is taken from lists that grow in the first step and start over in the next.
// finishStep() is the one point where the host waits for the GPU; that of the first step captures
// its segments as CUDA graphs.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/loss_chain.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/matmul_chain.h"
#include "runtime/device/cuda/matmul_timing.h"
#include "runtime/device/cuda/segment_graphs.h"
#include "runtime/device/device.h"

namespace trireme::runtime::cuda {

class CudaRank final : public RankDevice {
 public:
  // Allocates and zeroes the arena. `gpu`, `bundle` and `image` outlive the rank. Without `graphs`
  // kernels are launched one by one.
  // kResourceExhausted: not enough memory. kInvalidArgument: a segment with an op that has no CUDA
  // kernel for its types. kInternal: a generated kernel that the GPU did not load.
  static Result<std::unique_ptr<CudaRank>> create(const Gpu& gpu, const program::Bundle& bundle,
                                                  const RankProgram& image, bool graphs = true);
  ~CudaRank() override;

  const RankProgram& program() const override { return program_; }
  Status beginStep() override;
  Status finishStep() override;
  void setWatch(std::function<Status()> watch) override { watch_ = std::move(watch); }
  Status mark(program::Stream stream, int64_t numInstructions) override;
  int64_t passed(program::Stream stream) const override;
  void abandon() override { gpu_.abandon(); }
  void quiesce() override;
  Result<int32_t> stamp(program::Stream stream) override;
  Result<double> secondsOf(int32_t stamp) const override;
  Status runSegment(const SegmentCall& call) override;
  Status zero(void* data, int64_t bytes) override;
  bool isAsynchronous() const override { return true; }
  Result<int32_t*> stagingFor(int32_t* target, int64_t count) override;
  Status sendTokens(int32_t* target, const int32_t* staged, int64_t count) override;
  Status sumSquares(std::span<const BucketRows> buckets, double* squares) override;
  Status adamW(const AdamWCall& call) override;
  Status updateLossScale(const LossScaleUpdate& update) override;
  int32_t newEvent() override;
  Status record(int32_t event, program::Stream stream) override;
  Status wait(int32_t event, program::Stream stream) override;
  Status fetch(void* data, int64_t bytes) override;
  Status store(const void* data, int64_t bytes) override;

  // For communicators.
  const Gpu& gpu() const { return gpu_; }
  StreamHandle stream(program::Stream stream) const {
    return streams_[static_cast<size_t>(stream)];
  }
  // Of newEvent(), for a rank of another thread to wait for.
  EventHandle eventHandle(int32_t event) const { return events_[static_cast<size_t>(event)]; }
  Status waitForHandle(EventHandle event, program::Stream stream);
  Status copy(void* to, const void* from, int64_t bytes, program::Stream stream);
  // The same between places that may overlap.
  Status move(void* to, const void* from, int64_t bytes, program::Stream stream);
  // Memory of the device beside the arena, freed with the rank. kInternal: the driver has none.
  Result<char*> block(int64_t bytes, const char* what);

  // For the choice of algorithms (matmul_tuning.h): its matrix products, those that it never calls
  // left out; what an algorithm of one depends on; every byte of the arena at once, which waits for
  // the GPU.
  std::vector<MatmulCall> products() const;
  // Those of a segment that is called with these operands.
  std::vector<MatmulCall> productsOf(int32_t segment,
                                     const std::vector<std::vector<void*>>& calls) const;
  std::string keyOf(const MatmulCall& call) const {
    return call.matmul->key(call.alignment, workspace_.bytes);
  }
  const Workspace& workspace() const { return workspace_; }
  Status fillArena(uint8_t byte);
  // Fills a part of it, for some 100 us, and does not wait.
  Status occupy(uint8_t byte);

 private:
  // Device memory that is freed with the rank.
  struct Block {
    DevicePointer data = 0;
    int64_t bytes = 0;
  };
  // Rows of some buckets, cut into pieces, on the device.
  struct SquaresTable {
    SquaresArgs args{};
    FunctionHandle pieces = nullptr;
  };
  using Step = LaunchStep;

  CudaRank(const Gpu& gpu, const RankProgram& image);
  Status open(const program::Bundle& bundle, bool graphs);
  Status loadSegment(int32_t index, const program::CompiledSegment* compiled);
  // Whether the chain's ops run as one product; otherwise nothing is added.
  Result<bool> addChain(int32_t segment, const std::vector<SegmentStep>& list,
                        const MatmulChain& chain);
  // The steps that run as one from `first` on, which are added; none: nothing is added. The same
  // for all ranks of a role.
  Result<std::vector<size_t>> addMerged(int32_t segment, const std::vector<SegmentStep>& list,
                                        size_t first);
  bool mayMerge(int32_t segment, const std::vector<SegmentStep>& list,
                const MergedSteps& merged) const;
  // An op on its own. kInternal: also addresses that its kernels do not take.
  Status addStep(int32_t segment, const program::SegmentOp& op);
  void openGraphs(const program::Bundle& bundle, bool enabled);
  Result<DevicePointer> allocate(int64_t bytes, const char* what);
  Result<void*> allocateHost(int64_t bytes, const char* what);
  Result<void*> upload(const void* data, int64_t bytes, const char* what);
  Status openStreams();
  Status openProgress();
  Status waitFor(StreamHandle stream, const char* what) const;
  // cuda_optimizer.cpp
  Status openOptimizer();
  Result<SquaresTable> buildTable(std::span<const BucketRows> buckets);
  Status sumSquaresOfOneType(std::span<const BucketRows> buckets, double* squares);
  Status launchAdamW(AdamWArgs& args, std::span<const AdamWArrays> buckets);
  Status check(int error, const char* what) const;
  StreamHandle compute() const { return stream(program::Stream::kCompute); }
  DevicePointer onDevice(const void* data) const;

  const Gpu& gpu_;
  const DriverApi& api_;
  const RankProgram& image_;
  RankProgram program_;
  std::array<StreamHandle, program::kNumStreams> streams_{};
  std::vector<Block> blocks_;
  std::unique_ptr<CublasLt> cublasLt_;
  std::vector<std::vector<Step>> segments_;
  std::vector<SegmentGraphs> graphs_;  // per segment
  Workspace workspace_;
  std::vector<EventHandle> events_;
  size_t eventsUsed_ = 0;
  std::vector<EventHandle> stamps_;  // events with times; the first is of the step's beginning
  size_t stampsUsed_ = 0;
  double firstStampSeconds_ = 0;  // of the host's clock
  // Marks of the step: asked for, and written by the streams into memory of the host.
  std::array<uint32_t, program::kNumStreams> marks_{};
  uint32_t* passed_ = nullptr;
  std::function<Status()> watch_;
  Status eventFailure_;                     // of newEvent(), which cannot return it
  std::vector<void*> hostBlocks_;           // pinned memory of the host
  std::map<int32_t, SquaresTable> tables_;  // by the first bucket
  FunctionHandle squaresRows_ = nullptr, adamwScale_ = nullptr, updateLossScale_ = nullptr;
  std::map<DType, FunctionHandle> adamw_;          // per type of the parameters
  std::map<DType, FunctionHandle> squaresPieces_;  // and of the gradients
  AdamWFactors* factors_ = nullptr;
};

}  // namespace trireme::runtime::cuda
