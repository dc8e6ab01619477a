#include "runtime/kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#define TRIREME_ISA avx512
#define TRIREME_TARGET __attribute__((target("avx512f")))
#define TRIREME_VECTOR_BYTES 64
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#define TRIREME_ISA avx2
#define TRIREME_TARGET __attribute__((target("avx2,fma")))
#define TRIREME_VECTOR_BYTES 32
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#endif
#define TRIREME_ISA baseline
#define TRIREME_TARGET
#define TRIREME_VECTOR_BYTES 16
#include "runtime/kernels/gemm_tile.inc"

namespace trireme::runtime {
namespace {

using program::GemmBlocking;

// A panel of a keeps rows apart by more than the depth of a block, and not by a power of two, which
// would put all rows into one set of the cache.
constexpr int kPanelRowStride = GemmBlocking::kDepth + GemmBlocking::kPanelPad;

template <typename T>
using TileFunction = void (*)(int64_t, const T*, const T*, T*, int64_t, bool);

template <typename T>
struct Tile {
  int rows, cols;
  TileFunction<T> byRows;     // panel[row * kPanelRowStride + k]
  TileFunction<T> byColumns;  // panel[k * rows + row]
};

template <typename T>
Tile<T> pickTile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return {9, 3 * avx512::kVectorElements<T>, avx512::multiplyTile<T, 9, 3, kPanelRowStride, 1>,
            avx512::multiplyTile<T, 9, 3, 1, 9>};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {4, 3 * avx2::kVectorElements<T>, avx2::multiplyTile<T, 4, 3, kPanelRowStride, 1>,
            avx2::multiplyTile<T, 4, 3, 1, 4>};
#endif
  return {4, 3 * baseline::kVectorElements<T>, baseline::multiplyTile<T, 4, 3, kPanelRowStride, 1>,
          baseline::multiplyTile<T, 4, 3, 1, 4>};
}

template <typename T>
const Tile<T>& tileOf() {
  static const Tile<T> tile = pickTile<T>();
  return tile;
}

// Transposes a square of 16-byte vectors: rows of `from` become columns of `to`.
inline void transposeSquare(const float* from, int64_t fromStride, float* to, int64_t toStride) {
  using V = float __attribute__((vector_size(16)));
  V r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], from + i * fromStride, sizeof(V));
  const V low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const V high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const V low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const V high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const V out[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                    __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                    __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                    __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * toStride, &out[i], sizeof(V));
}

inline void transposeSquare(const double* from, int64_t fromStride, double* to, int64_t toStride) {
  const double a = from[0], b = from[1], c = from[fromStride], d = from[fromStride + 1];
  to[0] = a;
  to[1] = c;
  to[toStride] = b;
  to[toStride + 1] = d;
}

// panel[k * width + j] = b(k, j) for j < cols, and 0 for the other j < width.
template <typename T>
void packColumns(const MatrixRef<T>& b, int64_t depth, int64_t cols, int64_t width, T* panel) {
  constexpr int64_t kSquare = 16 / sizeof(T);
  if (cols < width) std::fill(panel, panel + depth * width, T{0});
  if (b.colStride == 1) {
    for (int64_t k = 0; k < depth; ++k)
      std::copy_n(b.data + k * b.rowStride, cols, panel + k * width);
    return;
  }
  const int64_t squareCols = cols / kSquare * kSquare, squareDepth = depth / kSquare * kSquare;
  for (int64_t k = 0; k < squareDepth; k += kSquare)
    for (int64_t j = 0; j < squareCols; j += kSquare)
      transposeSquare(b.data + j * b.colStride + k * b.rowStride, b.colStride,
                      panel + k * width + j, width);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = k < squareDepth ? squareCols : 0; j < cols; ++j)
      panel[k * width + j] = b.data[k * b.rowStride + j * b.colStride];
}

// panel[i * kPanelRowStride + k] = a(i, k); 0 for the rows beyond.
template <typename T>
void packRows(const MatrixRef<T>& a, int64_t depth, int64_t rows, int64_t height, T* panel) {
  for (int64_t i = 0; i < height; ++i) {
    T* row = panel + i * kPanelRowStride;
    if (i < rows)
      std::copy_n(a.data + i * a.rowStride, depth, row);
    else
      std::fill_n(row, depth, T{0});
  }
}

template <typename T>
struct Scratch {
  T* block;  // of b: panels of tile.cols columns
  T* panel;  // of a
  T* edge;   // a whole tile of c
};

template <typename T>
Scratch<T> divideScratch(void* scratch, int64_t n, int64_t k) {
  const auto address = (reinterpret_cast<uintptr_t>(scratch) + 63) & ~uintptr_t{63};
  T* block = reinterpret_cast<T*>(address);
  T* panel = block + GemmBlocking::blockElements(n, k, sizeof(T));
  return {block, panel, panel + GemmBlocking::panelElements()};
}

// One tile of c, which may stick out over the edge of the matrix.
template <typename T>
void tileOnEdge(TileFunction<T> multiply, int64_t depth, const T* panel, const T* b, T* c,
                const GemmCall<T>& call, int64_t rows, int64_t cols, bool accumulate, T* edge) {
  const Tile<T>& tile = tileOf<T>();
  if (rows == tile.rows && cols == tile.cols)
    return multiply(depth, panel, b, c, call.ldc, accumulate);
  multiply(depth, panel, b, edge, tile.cols, false);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const T value = edge[i * tile.cols + j];
      c[i * call.ldc + j] = accumulate ? c[i * call.ldc + j] + value : value;
    }
}

// Columns [col, col + cols) and depths [first, first + depth) of the product.
template <typename T>
void multiplyBlock(const GemmCall<T>& call, int64_t col, int64_t cols, int64_t first, int64_t depth,
                   const Scratch<T>& scratch) {
  const Tile<T>& tile = tileOf<T>();
  for (int64_t j = 0; j < cols; j += tile.cols)
    packColumns(call.b.at(first, col + j), depth, std::min<int64_t>(tile.cols, cols - j), tile.cols,
                scratch.block + j * depth);
  const bool byRows = call.a.colStride == 1;
  const bool accumulate = call.accumulate || first > 0;
  for (int64_t i = 0; i < call.m; i += tile.rows) {
    const int64_t rows = std::min<int64_t>(tile.rows, call.m - i);
    if (byRows)
      packRows(call.a.at(i, first), depth, rows, tile.rows, scratch.panel);
    else
      packColumns(call.a.at(i, first).transposed(), depth, rows, tile.rows, scratch.panel);
    for (int64_t j = 0; j < cols; j += tile.cols)
      tileOnEdge(byRows ? tile.byRows : tile.byColumns, depth, scratch.panel,
                 scratch.block + j * depth, call.c + i * call.ldc + col + j, call, rows,
                 std::min<int64_t>(tile.cols, cols - j), accumulate, scratch.edge);
  }
}

// What a thread needs to be worth waking: 2 MFLOP, about 10 us.
constexpr int64_t kFlopsPerPiece = 2'000'000;

struct Split {
  int pieces;
  bool byColumns;
};

// Columns rather than rows: then no thread packs a part of b that another packs as well.
template <typename T>
Split splitOf(const GemmCall<T>& call, int threads) {
  const Tile<T>& tile = tileOf<T>();
  const int64_t flops = 2 * call.m * call.n * call.k;
  const int64_t most = std::min<int64_t>(threads, program::kMaxKernelThreads);
  const int64_t wanted = std::clamp<int64_t>(flops / kFlopsPerPiece, 1, most);
  const int64_t colTiles = (call.n + tile.cols - 1) / tile.cols;
  const int64_t rowTiles = (call.m + tile.rows - 1) / tile.rows;
  const bool byColumns = colTiles >= 2 * wanted || colTiles >= rowTiles;
  return {static_cast<int>(std::min(wanted, byColumns ? colTiles : rowTiles)), byColumns};
}

template <typename T>
GemmCall<T> pieceOf(const GemmCall<T>& call, const Split& split, int piece) {
  const int64_t step = split.byColumns ? tileOf<T>().cols : tileOf<T>().rows;
  const int64_t extent = split.byColumns ? call.n : call.m;
  const int64_t tiles = (extent + step - 1) / step;
  const int64_t begin = tiles * piece / split.pieces * step;
  const int64_t end = std::min(extent, tiles * (piece + 1) / split.pieces * step);
  GemmCall<T> part = call;
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

template <typename T>
void gemm(const GemmCall<T>& call, void* scratch) {
  const Scratch<T> parts = divideScratch<T>(scratch, call.n, call.k);
  const int64_t width = GemmBlocking::columns(sizeof(T));
  for (int64_t col = 0; col < call.n; col += width)
    for (int64_t first = 0; first < call.k; first += GemmBlocking::kDepth)
      multiplyBlock(call, col, std::min(width, call.n - col), first,
                    std::min<int64_t>(GemmBlocking::kDepth, call.k - first), parts);
}

template <typename T>
void parallelGemm(const GemmCall<T>& call, ThreadPool& pool, void* scratch) {
  const Split split = splitOf(call, pool.numThreads());
  if (split.pieces == 1) return gemm(call, scratch);
  const int64_t bytes = program::gemmScratchBytes(call.n, call.k, sizeof(T));
  pool.run(split.pieces, [&](int piece) {
    gemm(pieceOf(call, split, piece), static_cast<char*>(scratch) + piece * bytes);
  });
}

template void gemm(const GemmCall<float>&, void*);
template void gemm(const GemmCall<double>&, void*);
template void parallelGemm(const GemmCall<float>&, ThreadPool&, void*);
template void parallelGemm(const GemmCall<double>&, ThreadPool&, void*);

}  // namespace trireme::runtime
