#include "runtime/state/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace trireme::runtime {
namespace {

std::string tensorName(const program::Parameter& parameter, int32_t layer) {
  const size_t brace = parameter.name.find("{}");
  if (brace == std::string::npos) return parameter.name;
  return parameter.name.substr(0, brace) + std::to_string(parameter.firstLayer + layer) +
         parameter.name.substr(brace + 2);
}

int32_t bufferOf(const program::Bucket& b, StateKind kind) {
  const int32_t buffers[] = {b.parameter, b.master < 0 ? b.parameter : b.master, b.moment1,
                             b.moment2, b.gradient};
  return buffers[static_cast<size_t>(kind)];
}

}  // namespace

int32_t numTensors(const program::Parameter& parameter) { return std::max(1, parameter.numLayers); }

int64_t LogicalTensor::elements() const {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

// Walks over the rows (last dim) of the local part.
void forEachRun(const program::Parameter& parameter, int64_t tp, int64_t tpIndex,
                const RunVisitor& visit) {
  const size_t rank = parameter.dims.size();
  if (rank == 0) return visit(0, 0, 1);
  std::vector<int64_t> local = parameter.paddedDims, first(rank, 0), at(rank, 0);
  if (parameter.tpDim >= 0) {
    const auto dim = static_cast<size_t>(parameter.tpDim);
    local[dim] /= tp;
    first[dim] = tpIndex * local[dim];
  }
  const size_t last = rank - 1;
  const int64_t length = std::min(local[last], parameter.dims[last] - first[last]);
  int64_t numRows = 1;
  for (size_t d = 0; d < last; ++d) numRows *= local[d];
  if (length <= 0) return;
  for (int64_t row = 0; row < numRows; ++row) {
    bool logical = true;
    int64_t global = 0;
    for (size_t d = 0; d < last; ++d) {
      logical = logical && first[d] + at[d] < parameter.dims[d];
      global = (global + first[d] + at[d]) * parameter.dims[d + 1];
    }
    if (logical) visit(row * local[last], global + first[last], length);
    for (size_t d = last; d-- > 0;) {
      if (++at[d] < local[d]) break;
      at[d] = 0;
    }
  }
}

bool isSharded(const program::Bucket& bucket, StateKind kind) {
  return bucket.sharded && bufferOf(bucket, kind) != bucket.parameter;
}

BucketView bucketViewAt(const RankProgram& rank, int32_t bucket, StateKind kind, int64_t element) {
  const program::Bucket& b = rank.role->buckets[static_cast<size_t>(bucket)];
  const int32_t buffer = bufferOf(b, kind);
  BucketView view;
  view.data = rank.address(buffer);
  view.type = rank.role->buffers[static_cast<size_t>(buffer)].dtype;
  view.end = b.elements;
  if (!isSharded(b, kind)) return view;
  const int64_t piece = b.elements / b.pieces, shard = piece / rank.program->dp;
  const int64_t index = element / std::max<int64_t>(piece, 1);
  view.begin = index * piece + rank.info.dpIndex * shard;
  view.end = view.begin + shard;
  view.data += (kind == StateKind::kGradient ? view.begin : index * shard) * byteSize(view.type);
  return view;
}

std::vector<BucketView> bucketViews(const RankProgram& rank, int32_t bucket, StateKind kind) {
  const program::Bucket& b = rank.role->buckets[static_cast<size_t>(bucket)];
  const int32_t count = isSharded(b, kind) ? b.pieces : 1;
  std::vector<BucketView> views;
  for (int32_t i = 0; i < count; ++i)
    views.push_back(bucketViewAt(rank, bucket, kind, i * (b.elements / b.pieces)));
  return views;
}

void forEachPiece(const RankProgram& rank, const program::Parameter& parameter, int32_t layer,
                  StateKind kind, const PieceVisitor& visit) {
  const int64_t start = parameter.offset + layer * parameter.layerStride;
  const BucketView view = bucketViewAt(rank, parameter.bucket, kind, start);
  const auto clip = [&](int64_t local, int64_t global, int64_t length) {
    const int64_t begin = std::max(start + local, view.begin);
    const int64_t end = std::min(start + local + length, view.end);
    if (begin >= end) return;
    visit(view.data + (begin - view.begin) * byteSize(view.type), view.type,
          global + begin - (start + local), end - begin);
  };
  forEachRun(parameter, rank.program->tp, rank.info.tpIndex, clip);
}

Result<std::vector<LogicalTensor>> logicalTensors(const program::Program& program) {
  std::map<int32_t, LogicalTensor> byIndex;
  for (const bool copies : {false, true})
    for (size_t role = 0; role < program.roles.size(); ++role)
      for (const program::Parameter& parameter : program.roles[role].parameters) {
        if (parameter.copy != copies) continue;
        for (int32_t layer = 0; layer < numTensors(parameter); ++layer) {
          const int32_t index = parameter.logicalIndex + layer * parameter.logicalStride;
          LogicalTensor& tensor = byIndex[index];
          const std::string name = tensorName(parameter, layer);
          if (tensor.rows.empty() && copies)
            return Error(invalidArgument(fmt::format("{}: a copy without an original", name)));
          if (tensor.rows.empty()) {
            tensor.name = name;
            tensor.dims = parameter.dims;
            tensor.logicalIndex = index;
          } else if (tensor.dims != parameter.dims || (!copies && tensor.name != name)) {
            return Error(invalidArgument(
                fmt::format("{} and {} are both logical parameter {}", tensor.name, name, index)));
          }
          tensor.rows.push_back({static_cast<int32_t>(role), &parameter, layer});
        }
      }
  std::vector<LogicalTensor> tensors;
  std::set<std::string> names;
  for (auto& [index, tensor] : byIndex) {
    if (!names.insert(tensor.name).second)
      return Error(invalidArgument(fmt::format("two parameters are named {}", tensor.name)));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace trireme::runtime
