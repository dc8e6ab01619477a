#include "runtime/kernels/gemm.h"

#include <algorithm>
#include <type_traits>

#include "runtime/kernels/gemm_engine.h"
#include "runtime/kernels/row_kernels.h"

namespace trireme::runtime {
namespace {

using program::GemmBlocking;
using program::roundUp;

template <typename T>
const GemmEngine<T, SumOf<T>>& engineOf() {
  if constexpr (std::is_same_v<T, Bf16>) {
    static const GemmEngine<Bf16, float>* amx = amxEngine();
    if (amx != nullptr) return *amx;
  }
  return vectorEngine<T, SumOf<T>>();
}

template <typename Sum>
struct Scratch {
  char* block;  // of b: panels, each of a tile's columns
  char* panel;  // of a
  Sum* edge;    // a whole tile of c
  Sum* staged;  // rows of c before they are rounded
};

template <typename T, typename C>
Scratch<SumOf<T>> divideScratch(void* scratch, const GemmCall<T, C>& call) {
  const auto address = (reinterpret_cast<uintptr_t>(scratch) + 63) & ~uintptr_t{63};
  char* block = reinterpret_cast<char*>(address);
  char* panel = block + roundUp(GemmBlocking::blockBytes(call.n, call.k, sizeof(T)), 64);
  char* edge = panel + GemmBlocking::kPanelBytes;
  char* staged = edge + GemmBlocking::kEdgeBytes;
  using Sum = SumOf<T>;
  return {block, panel, reinterpret_cast<Sum*>(edge), reinterpret_cast<Sum*>(staged)};
}

// A multiple of every engine's depthMultiple.
constexpr int64_t kPackedRows = 32;

// Columns [col, col + cols) and depths [first, first + depth) of a product.
struct Block {
  int64_t col, cols, first, depth;
};

template <typename T>
struct Product {
  using Sum = SumOf<T>;
  const GemmEngine<T, Sum>& engine;
  GemmCall<T, Sum> call;
  Scratch<Sum> scratch;

  void multiply(const Block& block) const {
    const int64_t packedDepth = roundUp(block.depth, engine.depthMultiple);
    packB(block, packedDepth);
    for (int64_t i = 0; i < call.m; i += engine.rows) {
      const int64_t rows = std::min(engine.rows, call.m - i);
      const auto pack = byRows() ? engine.packByRows : engine.packByColumns;
      pack(call.a.at(i, block.first), block.depth, rows, scratch.panel);
      for (int64_t j = 0; j < block.cols; j += engine.cols) tile(block, packedDepth, i, j, rows);
    }
  }

 private:
  bool byRows() const { return call.a.colStride == 1; }
  char* panelOfB(int64_t j, int64_t packedDepth) const {
    return scratch.block + j * packedDepth * engine.packedElementBytes;
  }

  // In the order in which b lies in memory: down its columns, or some rows at a time across them.
  void packB(const Block& block, int64_t packedDepth) const {
    const int64_t step = call.b.colStride == 1 ? kPackedRows : block.depth;
    for (int64_t k = 0; k < block.depth; k += step)
      for (int64_t j = 0; j < block.cols; j += engine.cols)
        engine.packB(call.b.at(block.first + k, block.col + j), std::min(step, block.depth - k),
                     std::min(engine.cols, block.cols - j),
                     panelOfB(j, packedDepth) + k * engine.cols * engine.packedElementBytes);
  }

  // Rows from i and columns from j of the block; the tile may stick out over the edge.
  void tile(const Block& block, int64_t packedDepth, int64_t i, int64_t j, int64_t rows) const {
    const auto multiply = byRows() ? engine.multiplyByRows : engine.multiplyByColumns;
    const int64_t cols = std::min(engine.cols, block.cols - j);
    const bool accumulate = call.accumulate || block.first > 0;
    const char* b = panelOfB(j, packedDepth);
    Sum* c = call.c + i * call.ldc + block.col + j;
    // The sums reach c after microseconds of arithmetic: enough to fetch its lines.
    for (int64_t row = 0; row < rows; ++row) {
      __builtin_prefetch(c + row * call.ldc, 1);
      __builtin_prefetch(c + row * call.ldc + cols - 1, 1);
    }
    if (rows == engine.rows && cols == engine.cols)
      return multiply(packedDepth, scratch.panel, b, c, call.ldc, accumulate);
    multiply(packedDepth, scratch.panel, b, scratch.edge, engine.cols, false);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col) {
        const Sum value = scratch.edge[row * engine.cols + col];
        Sum& target = c[row * call.ldc + col];
        target = accumulate ? target + value : value;
      }
  }
};

template <typename T>
void multiplyAll(const Product<T>& product) {
  const int64_t width = GemmBlocking::columns(sizeof(T)), depth = product.engine.depth;
  const int64_t n = product.call.n, k = product.call.k;
  for (int64_t col = 0; col < n; col += width)
    for (int64_t first = 0; first < k; first += depth)
      product.multiply({col, std::min(width, n - col), first, std::min(depth, k - first)});
}

// Sums in f32 in scratch, then rounds, some rows and columns at a time.
void multiplyStaged(const GemmEngine<Bf16, float>& engine, const GemmCall<Bf16, Bf16>& call,
                    const Scratch<float>& scratch) {
  const int64_t width = GemmBlocking::columns(sizeof(Bf16)), height = GemmBlocking::kStagedRows;
  for (int64_t col = 0; col < call.n; col += width)
    for (int64_t row = 0; row < call.m; row += height) {
      const int64_t m = std::min(height, call.m - row), n = std::min(width, call.n - col);
      multiplyAll(Product<Bf16>{
          engine,
          {m, n, call.k, call.a.at(row, 0), call.b.at(0, col), scratch.staged, n, false},
          scratch});
      for (int64_t i = 0; i < m; ++i)
        rowKernels().narrow(scratch.staged + i * n, n, call.c + (row + i) * call.ldc + col);
    }
}

// What a thread needs to be worth waking: 2 MFLOP, about 10 us.
constexpr int64_t kFlopsPerPiece = 2'000'000;

struct Split {
  int pieces;
  bool byColumns;
  int64_t step;  // a border between pieces is a multiple of this
};

// Columns rather than rows: then no thread packs a part of b that another packs as well.
template <typename T, typename C>
Split splitOf(const GemmCall<T, C>& call, int threads) {
  const auto& engine = engineOf<T>();
  const int64_t flops = 2 * call.m * call.n * call.k;
  const int64_t most = std::min<int64_t>(threads, program::kMaxKernelThreads);
  const int64_t wanted = std::clamp<int64_t>(flops / kFlopsPerPiece, 1, most);
  const int64_t colTiles = (call.n + engine.cols - 1) / engine.cols;
  const int64_t rowTiles = (call.m + engine.rows - 1) / engine.rows;
  const bool byColumns = colTiles >= 2 * wanted || colTiles >= rowTiles;
  return {static_cast<int>(std::min(wanted, byColumns ? colTiles : rowTiles)), byColumns,
          byColumns ? engine.cols : engine.rows};
}

template <typename T, typename C>
GemmCall<T, C> pieceOf(const GemmCall<T, C>& call, const Split& split, int piece) {
  const int64_t extent = split.byColumns ? call.n : call.m;
  const int64_t tiles = (extent + split.step - 1) / split.step;
  const int64_t begin = tiles * piece / split.pieces * split.step;
  const int64_t end = std::min(extent, tiles * (piece + 1) / split.pieces * split.step);
  GemmCall<T, C> part = call;
  if (split.byColumns) {
    part.n = end - begin;
    part.b = call.b.at(0, begin);
    part.c = call.c + begin;
  } else {
    part.m = end - begin;
    part.a = call.a.at(begin, 0);
    part.c = call.c + begin * call.ldc;
  }
  return part;
}

}  // namespace

template <typename T, typename C>
void gemm(const GemmCall<T, C>& call, void* scratch) {
  const auto& engine = engineOf<T>();
  const auto parts = divideScratch(scratch, call);
  if (engine.begin != nullptr) engine.begin();
  if constexpr (std::is_same_v<C, SumOf<T>>)
    multiplyAll(Product<T>{engine, call, parts});
  else
    multiplyStaged(engine, call, parts);
  if (engine.end != nullptr) engine.end();
}

template <typename T, typename C>
void parallelGemm(const GemmCall<T, C>& call, ThreadPool& pool, void* scratch) {
  const Split split = splitOf(call, pool.numThreads());
  if (split.pieces == 1) return gemm(call, scratch);
  const int64_t bytes = program::gemmScratchBytes(call.shape());
  pool.run(split.pieces, [&](int piece) {
    gemm(pieceOf(call, split, piece), static_cast<char*>(scratch) + piece * bytes);
  });
}

template void gemm(const GemmCall<float>&, void*);
template void gemm(const GemmCall<double>&, void*);
template void gemm(const GemmCall<Bf16, float>&, void*);
template void gemm(const GemmCall<Bf16, Bf16>&, void*);
template void parallelGemm(const GemmCall<float>&, ThreadPool&, void*);
template void parallelGemm(const GemmCall<double>&, ThreadPool&, void*);
template void parallelGemm(const GemmCall<Bf16, float>&, ThreadPool&, void*);
template void parallelGemm(const GemmCall<Bf16, Bf16>&, ThreadPool&, void*);

}  // namespace trireme::runtime
