// Where the elements of the logical tensors lie: the map between a row of the state table and the
// flat, padded and sharded buckets of the ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

enum class StateKind : uint8_t { kParameter, kMaster, kMoment1, kMoment2, kGradient };

// A contiguous run of one tensor: `length` elements, from element `local` of the tensor's local
// part, which are elements `global`... of the logical (unpadded, unsharded, row-major) tensor.
using RunVisitor = std::function<void(int64_t local, int64_t global, int64_t length)>;

// All runs of the part of `parameter` that tp member `tpIndex` of `tp` holds; padding is in none.
void forEachRun(const program::Parameter& parameter, int64_t tp, int64_t tpIndex,
                const RunVisitor& visit);

// Elements [begin, end) of a bucket that one rank holds for certain, with `data` at `begin`: all,
// or sharded, of each piece, the rank's own d-th of masters, moments and (reduced) gradient. The
// gradient's d-th is at its place in the full bucket.
struct BucketView {
  char* data = nullptr;
  DType type = DType::kF32;
  int64_t begin = 0, end = 0;
};
// Whether ranks of a data-parallel group hold a part each, where there are several.
bool isSharded(const program::Bucket& bucket, StateKind kind);
std::vector<BucketView> bucketViews(const RankProgram& rank, int32_t bucket, StateKind kind);
// The only one of them that can hold something of the parameter that has `element`.
BucketView bucketViewAt(const RankProgram& rank, int32_t bucket, StateKind kind, int64_t element);

// `length` elements at `data` are elements `global`... of the logical tensor.
using PieceVisitor = std::function<void(char* data, DType type, int64_t global, int64_t length)>;
// All pieces of layer `layer` (from 0) of `parameter` that `rank` holds.
void forEachPiece(const RankProgram& rank, const program::Parameter& parameter, int32_t layer,
                  StateKind kind, const PieceVisitor& visit);

// One logical tensor of the model and the rows that describe it, one per role that has it.
struct LogicalTensor {
  std::string name;  // with the layer number
  std::vector<int64_t> dims;
  int32_t logicalIndex = 0;
  struct Row {
    int32_t role = 0;
    const program::Parameter* parameter = nullptr;
    int32_t layer = 0;  // from 0, of the row
  };
  std::vector<Row> rows;  // the first is not a copy
  int64_t elements() const;
};
// In order of logical index.
// kInvalidArgument: two different tensors share an index or a name, or a copy has no original.
Result<std::vector<LogicalTensor>> logicalTensors(const program::Program& program);

// Layers that a row stands for (1 if it is not of a layer).
int32_t numTensors(const program::Parameter& parameter);

}  // namespace trireme::runtime
