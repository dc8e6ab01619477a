// What the kernels get: plain structs that host and device lay out alike. A kernel has one
// parameter, one of these, by value. Shapes and meanings of operands: ir/program/op.h.
#pragma once
#include <cstdint>

#include "ir/base/rope.h"

namespace trireme::runtime::cuda {

inline constexpr int kMaxOpOperands = 8;

// Of the kernels of ops. Fields that an op does not use are zero.
struct OpArgs {
  void* operands[kMaxOpOperands];  // inputs, then outputs
  int64_t tokens;                  // s b
  int64_t batch;                   // b
  int64_t width;                   // columns of a token; rows of an embedding table have as many
  int64_t rangeTokens;             // program::sumRangeTokens(tokens)
  int64_t rows;                    // kEmbedding(Grad): local rows of the table
  int64_t firstPosition;           // global position of the first local token
  int64_t firstColumn;             // global row, column or head of the first local one
  int64_t logicalColumns;          // loss ops: local columns that are no padding
  int64_t sequence, groups, headsPerGroup, headSize;  // rotary, attention
  double epsilon;                                     // norms
  double scale;                                       // kLossGrad
  const double* lossScaling;                          // kLossGrad: LossScaling; null: scale is all
  double theta;                                       // rotary
  RopeScaling ropeScaling;                            // rotary
  double direction;                                   // rotary: +1, or -1 for the inverse
  float* deltas;           // scratch of kAttentionGrad on tensor cores: [b, local heads, s], see
                           // attention_tiles.cu
  double keepScale;        // dropout: 1 / (1 - p); 0: nothing is dropped
  uint32_t dropThreshold;  // kept if the random word is at or above
  uint32_t keyLow, keyHigh;
  uint64_t firstSample;
};

// What columnSums() runs over: rows are split into ranges, at most kMaxRanges.
inline constexpr int kMaxRanges = 32;
struct ColumnShape {
  int64_t rows, rangeRows, columns;
};
// The columns of a token that a warp of kLossGrad takes.
inline constexpr int64_t kLossGradColumns = 1 << 12;
// The sums of blockSumOf().
inline constexpr int kBlockSums = 1024;

// Sum of squares, in two passes: of pieces of rows, then of the pieces of each row.
inline constexpr int64_t kSquaresPiece = 1 << 14;  // elements
struct SquaresPiece {
  const void* data;
  int64_t elements;
};
struct SquaresRow {
  int64_t firstPiece;
  int64_t numPieces;
  int64_t logicalIndex;
};
struct SquaresArgs {
  const SquaresPiece* pieces;
  int64_t numPieces;
  const SquaresRow* rows;
  int64_t numRows;
  double* partial;  // per piece
  double* squares;  // by logical index
};

// The numbers of program::LossScaling.
enum LossScalingNumber { kLossScale, kGoodSteps, kTakenSteps, kSkippedSteps };

// What the step's norm and number make of AdamW.
struct AdamWFactors {
  double gradientScale;
  double correct1, correct2;  // 1 / (1 - beta^t)
  bool isSkipped;
};

// AdamW of several buckets (runtime/executor/optimizer.h); constants as there, in f64. A bucket is
// cut into pieces, the last of which may be shorter; they are counted over all buckets.
inline constexpr int kMaxAdamWBuckets = 8;       // of a launch
inline constexpr int64_t kAdamWPiece = 1 << 10;  // elements
struct AdamWBucket {
  void* parameter;
  void* master;
  const void* gradient;
  void* moment1;
  void* moment2;
  int64_t elements;
  int64_t firstPiece;
  double weightDecay;
};
struct AdamWArgs {
  AdamWBucket buckets[kMaxAdamWBuckets];
  int64_t numBuckets, numPieces;
  const double* squares;  // of all logical parameters
  int64_t numSquares;
  const double* lossScaling;  // LossScaling, which gives t; null: nothing is scaled
  AdamWFactors* factors;      // scratch: adamw_scale writes it, adamw reads it
  double clipNorm;
  double learningRate, beta1, beta2, epsilon;
  double correct1, correct2;  // 1 / (1 - beta^t), where nothing is scaled
};

// The end of a step: LossScaling by its rule (ir/program/program.h).
struct LossScaleArgs {
  const double* squares;
  int64_t numSquares;
  double* lossScaling;
  double window, minimum;
};

// Element i of every output becomes ((in0 + in1) + ...) or the maximum of element i of all inputs.
// i in [begin, end).
inline constexpr int kMaxReduceMembers = 64;
struct ReduceArgs {
  const void* inputs[kMaxReduceMembers];
  void* outputs[kMaxReduceMembers];
  int32_t numInputs, numOutputs;
  int64_t begin, end;
};

}  // namespace trireme::runtime::cuda
