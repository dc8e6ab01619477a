// The optimizer's instructions of a rank on a GPU: norm, AdamW, loss scale. However many buckets,
// one launch (the norm: two) for all that have the same types.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/device/cuda/cuda_rank.h"

namespace trireme::runtime::cuda {
namespace {

constexpr int64_t kWarp = 32;

bool haveSameTypes(const BucketRows& a, const BucketRows& b) { return a.type == b.type; }
bool haveSameTypes(const AdamWArrays& a, const AdamWArrays& b) {
  return a.stateType == b.stateType && a.computeType == b.computeType;
}

// Calls f with the next buckets of the same types, at most `max`, until there are none.
template <typename Bucket, typename F>
Status forEachOfOneType(std::span<const Bucket> buckets, size_t max, F f) {
  while (!buckets.empty()) {
    size_t size = 1;
    while (size < std::min(max, buckets.size()) && haveSameTypes(buckets[0], buckets[size])) ++size;
    TRIREME_RETURN_IF_ERROR(f(buckets.first(size)));
    buckets = buckets.subspan(size);
  }
  return {};
}

}  // namespace

Status CudaRank::openOptimizer() {
  TRIREME_ASSIGN_OR_RETURN(const DevicePointer factors,
                           allocate(sizeof(AdamWFactors), "the optimizer's factors"));
  factors_ = reinterpret_cast<AdamWFactors*>(factors);
  TRIREME_ASSIGN_OR_RETURN(squaresRows_, gpu_.kernel("squares_rows"));
  TRIREME_ASSIGN_OR_RETURN(adamwScale_, gpu_.kernel("adamw_scale"));
  TRIREME_ASSIGN_OR_RETURN(updateLossScale_, gpu_.kernel("update_loss_scale"));
  for (DType type : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16}) {
    TRIREME_ASSIGN_OR_RETURN(adamw_[type], gpu_.kernel(fmt::format("adamw_{}", dtypeName(type))));
  }
  for (DType type : {DType::kF64, DType::kF32}) {
    TRIREME_ASSIGN_OR_RETURN(squaresPieces_[type],
                             gpu_.kernel(fmt::format("squares_pieces_{}", dtypeName(type))));
  }
  return {};
}

Result<CudaRank::SquaresTable> CudaRank::buildTable(std::span<const BucketRows> buckets) {
  const DType type = buckets.front().type;
  std::vector<SquaresPiece> pieces;
  std::vector<SquaresRow> table;
  for (const BucketRows& bucket : buckets)
    for (const NormRow& row : bucket.rows) {
      const auto first = std::ssize(pieces);
      for (int64_t done = 0; done < row.elements; done += kSquaresPiece)
        pieces.push_back(
            {row.data + done * byteSize(type), std::min(kSquaresPiece, row.elements - done)});
      table.push_back({first, std::ssize(pieces) - first, row.logicalIndex});
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
  result.args.numPieces = std::ssize(pieces);
  result.args.rows = static_cast<const SquaresRow*>(onRows);
  result.args.numRows = std::ssize(table);
  result.args.partial = reinterpret_cast<double*>(partial);
  result.pieces = squaresPieces_.at(type);
  return result;
}

Status CudaRank::sumSquaresOfOneType(std::span<const BucketRows> buckets, double* squares) {
  const int32_t first = buckets.front().bucket;
  if (!tables_.contains(first)) {
    TRIREME_ASSIGN_OR_RETURN(tables_[first], buildTable(buckets));
  }
  SquaresTable& table = tables_[first];
  table.args.squares = squares;
  TRIREME_RETURN_IF_ERROR(
      gpu_.launch(launchOf(table.pieces, &table.args, table.args.numPieces * kWarp), compute()));
  return gpu_.launch(launchOf(squaresRows_, &table.args, table.args.numRows * kWarp), compute());
}

Status CudaRank::sumSquares(std::span<const BucketRows> buckets, double* squares) {
  return forEachOfOneType(buckets, buckets.size(), [&](std::span<const BucketRows> some) {
    return sumSquaresOfOneType(some, squares);
  });
}

Status CudaRank::launchAdamW(AdamWArgs& args, std::span<const AdamWArrays> buckets) {
  const DType state = buckets.front().stateType, type = buckets.front().computeType;
  if ((state == DType::kF64) != (type == DType::kF64) || !adamw_.contains(type))
    return invalidArgument(fmt::format("no AdamW for state in {} and parameters in {}",
                                       dtypeName(state), dtypeName(type)));
  args.numBuckets = 0;
  args.numPieces = 0;
  for (const AdamWArrays& from : buckets) {
    AdamWBucket& bucket = args.buckets[args.numBuckets++];
    bucket = {from.parameter, from.master,   from.gradient,  from.moment1,
              from.moment2,   from.elements, args.numPieces, from.weightDecay};
    args.numPieces += (from.elements + kAdamWPiece - 1) / kAdamWPiece;
  }
  return gpu_.launch(launchOf(adamw_[type], &args, args.numPieces * kWarp), compute());
}

Status CudaRank::adamW(const AdamWCall& call) {
  AdamWArgs args{};
  args.squares = call.squares.data;
  args.numSquares = call.squares.count;
  args.lossScaling = reinterpret_cast<const double*>(call.lossScaling);
  args.factors = factors_;
  args.clipNorm = call.clipNorm;
  args.learningRate = call.step.learningRate;
  args.beta1 = call.step.beta1;
  args.beta2 = call.step.beta2;
  args.epsilon = call.step.epsilon;
  args.correct1 = 1 / (1 - powerOf(call.step.beta1, call.step.number));
  args.correct2 = 1 / (1 - powerOf(call.step.beta2, call.step.number));
  TRIREME_RETURN_IF_ERROR(gpu_.launch(launchOf(adamwScale_, &args, kWarp), compute()));
  return forEachOfOneType(call.buckets, kMaxAdamWBuckets, [&](std::span<const AdamWArrays> some) {
    return launchAdamW(args, some);
  });
}

Status CudaRank::updateLossScale(const LossScaleUpdate& update) {
  LossScaleArgs args{};
  args.squares = update.squares.data;
  args.numSquares = update.squares.count;
  args.lossScaling = reinterpret_cast<double*>(update.lossScaling);
  args.window = static_cast<double>(update.training->lossScaleWindow);
  args.minimum = update.training->minLossScale;
  return gpu_.launch(launchOf(updateLossScale_, &args, kWarp), compute());
}

}  // namespace trireme::runtime::cuda
