#include "runtime/state/gather.h"

#include <cstring>

#include "runtime/state/elements.h"

namespace trireme::runtime {
namespace {

// Whether the rank's part of the tensor is a replica of what a rank before it has.
bool isReplica(const RankProgram& rank, const program::Parameter& parameter, StateKind kind) {
  const BucketView view = bucketView(rank, parameter.bucket, kind);
  const auto& bucket = rank.role->buckets[static_cast<size_t>(parameter.bucket)];
  const bool whole = view.end - view.begin == bucket.elements;
  return (parameter.tpDim < 0 && rank.info.tpIndex > 0) || (whole && rank.info.dpIndex > 0);
}

template <typename Visit>
void forEachHolder(const TrainingState& state, const LogicalTensor& tensor, const Visit& visit) {
  for (const LogicalTensor::Row& row : tensor.rows)
    for (const RankProgram& rank : state.ranks)
      if (rank.info.role == row.role) visit(rank, *row.parameter, row.layer);
}

}  // namespace

DType storedType(const TrainingState& state, StateKind kind) {
  const program::Training& training = state.program->training;
  return kind == StateKind::kParameter ? training.computeDType : training.stateDType;
}

void gatherTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                  char* bytes) {
  forEachHolder(state, tensor,
                [&](const RankProgram& rank, const program::Parameter& parameter, int32_t layer) {
                  if (parameter.copy || isReplica(rank, parameter, kind)) return;
                  forEachPiece(rank, parameter, layer, kind,
                               [&](const char* data, DType type, int64_t global, int64_t length) {
                                 std::memcpy(bytes + global * byteSize(type), data,
                                             static_cast<size_t>(length * byteSize(type)));
                               });
                });
}

void scatterTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                   const char* bytes) {
  const DType stored = storedType(state, kind);
  const auto write = [&](char* data, DType type, int64_t global, int64_t length) {
    if (type == stored) {
      std::memcpy(data, bytes + global * byteSize(type),
                  static_cast<size_t>(length * byteSize(type)));
      return;
    }
    for (int64_t i = 0; i < length; ++i)
      storeElement(data, type, i, loadElement(bytes, stored, global + i));
  };
  forEachHolder(state, tensor,
                [&](const RankProgram& rank, const program::Parameter& parameter, int32_t layer) {
                  forEachPiece(rank, parameter, layer, kind, write);
                  if (kind == StateKind::kMaster)
                    forEachPiece(rank, parameter, layer, StateKind::kParameter, write);
                });
}

}  // namespace trireme::runtime
