// What the loop of an op runs over: shared by the phases that fuse and that lower.
#pragma once
#include <mlir/IR/Operation.h>

#include <cstdint>

namespace trireme::codegen {

enum class Space : uint8_t {
  kLibrary,    // not generated: a call of runtime/kernels
  kTokens,     // rows; may be fused
  kColumns,    // sums over the tokens of each column
  kPositions,  // sums over the batch of each position
};

// How the columns of a row are visited.
enum class Pairing : uint8_t {
  kNone,    // one by one
  kHalves,  // (c, width / 2 + c): gate and up
  kHeads,   // (i, headSize / 2 + i) within each head
};

struct Iteration {
  Space space = Space::kLibrary;
  int64_t tokens = 0;  // s * b
  int64_t batch = 1;
  int64_t width = 0;  // columns of a token, in the wider tensor
  Pairing pairing = Pairing::kNone;
  bool wholeRows = false;  // a norm: reduces each row before it writes it
};

// `op`: any op of the dialect.
Iteration iterationOf(mlir::Operation* op);

// Tokens, batch and columns per token of a tensor [s, b, ...] (or [s, ...], with a batch of one).
int64_t tokensOf(mlir::Type tensor);
int64_t batchOf(mlir::Type tensor);
int64_t widthOf(mlir::Type tensor);

}  // namespace trireme::codegen
