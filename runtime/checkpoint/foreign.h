// The weights of a model in files that other software keeps: safetensors with tensors of other
// names, put together and oriented another way. What corresponds to what is given as a value
// (cli/weights/hugging_face.h makes it); nothing here knows a model.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/state/gather.h"

namespace trireme::runtime {

// A tensor of the other files as a matrix: [rows, cols] row by row, or, transposed, [cols, rows].
// A vector has one column.
struct ForeignTensor {
  std::string name;
  int64_t rows = 0, cols = 1;
  bool isVector = false;
  bool isTransposed = false;
  bool mayHavePrefix = true;
  std::vector<int64_t> dims() const;
};

// Rows [row, row + count) of a tensor of ours are rows [foreignRow, foreignRow + count) of another.
struct RowBlock {
  size_t foreign = 0;  // index in ForeignWeights::tensors
  int64_t foreignRow = 0, row = 0, count = 0;
};

// A logical tensor as a matrix of `cols` columns. Its blocks cover every row once.
struct OwnTensor {
  std::string name;
  int64_t cols = 1;
  std::vector<RowBlock> blocks;
};

// A tensor that files may have beside one that is the same, as of tied embeddings.
struct ForeignCopy {
  std::string name;
  size_t of = 0;  // index in ForeignWeights::tensors
};

struct ForeignWeights {
  std::vector<ForeignTensor> tensors;
  std::vector<ForeignCopy> copies;
  std::vector<OwnTensor> own;
  std::string prefix;                // that all names in a file may have
  std::vector<std::string> ignored;  // ends of names of what is no parameter of its own
  uint64_t modelFingerprint = 0;     // that a checkpoint of ours must have
};

// Fills the parameters of all ranks from `path`: a safetensors file, an index of several
// (*.safetensors.index.json), or a folder with model.safetensors or such an index. Types f64, f32,
// bf16 and f16 are converted; what is ignored may be of any. Moments stay as they are. Everything
// is checked before the first parameter is touched. kInvalidArgument: a file is missing or
// malformed; a tensor is missing, misshapen, not of numbers, not of this model, or no copy of the
// one that it should be a copy of (names it). kUnavailable: the device failed: the weights are
// undefined.
Status loadForeignWeights(const TrainingState& state, const ForeignWeights& weights,
                          const std::string& path, FileSystem& files);

// A fingerprint of the files that loadForeignWeights() would read, in words, without reading them
// whole. Of ones that cannot be read, why.
std::string describeForeignWeights(const std::string& path, FileSystem& files);

// Writes the weights of a checkpoint of ours as `path`, one safetensors file of `type` (f32,
// bf16 or f16, rounded to nearest even), atomically. Names have the prefix if `withPrefix`. Errors:
// those of saveCheckpoint(); kInvalidArgument also if the file is no checkpoint of ours, damaged,
// or of another model, or a weight is not finite, or not in this type (names it).
Status writeForeignWeights(const std::string& checkpoint, const ForeignWeights& weights, DType type,
                           bool withPrefix, const std::string& path, FileSystem& files);

// Whether the file is one that writeForeignWeights() wrote.
bool isWrittenByUs(const std::string& path, FileSystem& files);

}  // namespace trireme::runtime
