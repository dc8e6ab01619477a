#include "runtime/kernels/gemm.h"

#include <unistd.h>

#include <algorithm>
#include <type_traits>

#include "runtime/kernels/gemm_engine.h"
#include "runtime/kernels/row_kernels.h"

namespace trireme::runtime {
namespace {

using program::GemmBlocking;
using program::roundUp;

template <typename T>
std::vector<const GemmEngine<T, SumOf<T>>*> findEngines() {
  auto engines = vectorEngines<T>();
  const auto prefer = [&](const GemmEngine<T, SumOf<T>>* engine) {
    if (engine != nullptr) engines.insert(engines.begin(), engine);
  };
  if constexpr (std::is_same_v<T, Bf16>) prefer(dotEngine()), prefer(amxEngine());
  if constexpr (std::is_same_v<T, float>) prefer(amxSplitEngine());
  return engines;
}

template <typename T>
const GemmEngine<T, SumOf<T>>& engineOf() {
  return *gemmEngines<T>().front();
}

template <typename Sum>
struct Scratch {
  char* block;   // packed panels of one factor
  char* panels;  // of the other factor
  Sum* edge;     // a whole tile of c
  Sum* staged;   // sums before they are rounded
};

template <typename T, typename C>
Scratch<SumOf<T>> divideScratch(void* scratch, const GemmCall<T, C>& call) {
  const auto address = (reinterpret_cast<uintptr_t>(scratch) + 63) & ~uintptr_t{63};
  char* block = reinterpret_cast<char*>(address);
  char* panels = block + GemmBlocking::blockBytes(call.shape());
  char* edge = panels + GemmBlocking::panelsBytes(call.shape());
  char* staged = edge + GemmBlocking::kEdgeBytes;
  using Sum = SumOf<T>;
  return {block, panels, reinterpret_cast<Sum*>(edge), reinterpret_cast<Sum*>(staged)};
}

struct Range {
  int64_t begin, size;

  int64_t end() const { return begin + size; }
};

Range pieceFrom(int64_t begin, int64_t size, const Range& whole) {
  return {begin, std::min(size, whole.end() - begin)};
}

// Rows of a block of a, so that it takes three fifths of the second-level cache: panels of b and
// tiles of c pass through the rest. At most what scratch has room for. Which rows form a block
// changes no result.
int64_t blockRows(int64_t elementBytes, int64_t packedRowBytes) {
  static const int64_t kCache = [] {
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return cache > 0 ? int64_t{cache} : int64_t{1} << 20;
  }();
  return std::clamp<int64_t>(kCache * 3 / 5 / packedRowBytes, GemmBlocking::kMaxTile,
                             GemmBlocking::blockRows(elementBytes));
}

constexpr int64_t kPackedDepths = 32;  // a multiple of every depthMultiple

// A block of one factor is packed as a whole, and panels of the other right before their use.
// A slice is some depths, of which the engine sums up all before it adds to c.
template <typename T, typename C>
class Product {
 public:
  using Sum = SumOf<T>;

  Product(const GemmEngine<T, Sum>& engine, const GemmCall<T, C>& call, const Scratch<Sum>& scratch)
      : engine_(engine), call_(call), scratch_(scratch) {}

  void run() {
    if (engine_.blockCols > 0)
      runByBlocksOfB();
    else
      runByBlocksOfA();
  }

 private:
  const GemmEngine<T, Sum>& engine_;
  const GemmCall<T, C> call_;
  const Scratch<Sum> scratch_;

  static constexpr bool kRounds = !std::is_same_v<C, Sum>;

  bool byRows() const { return call_.a.colStride == 1; }
  bool oneSlice() const { return call_.k <= engine_.depth; }
  int64_t rowOfABytes() const {
    return (engine_.depth + GemmBlocking::kPad) * engine_.packedElementBytes;
  }
  int64_t panelOfABytes() const { return engine_.rows * rowOfABytes(); }
  int64_t panelOfBBytes(int64_t packedDepth) const {
    return engine_.cols * packedDepth * engine_.packedElementBytes;
  }
  // Of a tile's rows of a block of b, in scratch.
  int64_t stripCols() const { return std::min(engine_.blockCols, roundUp(call_.n, engine_.cols)); }
  int64_t packedDepth(const Range& slice) const {
    return roundUp(slice.size, engine_.depthMultiple);
  }

  // Panels of b are packed right before their first use, and fetched while the panel before is
  // used. Several blocks of a share them, as many columns at a time as there is room for.
  void runByBlocksOfA() {
    const int64_t most = blockRows(sizeof(T), rowOfABytes()) / engine_.rows * engine_.rows;
    const int64_t blocks = std::max<int64_t>(1, (call_.m + most - 1) / most);
    const int64_t height = roundUp((call_.m + blocks - 1) / blocks, engine_.rows);
    const int64_t slices = most / std::max(height, engine_.rows);  // 1 if there are more blocks
    const int64_t room =
        GemmBlocking::panelsBytes(call_.shape()) / panelOfBBytes(engine_.depth) * engine_.cols;
    const bool shared = blocks > 1 && room > engine_.cols;
    const int64_t width = shared ? room : call_.n;
    for (int64_t col = 0; col < call_.n; col += width)
      for (int64_t k = 0; k < call_.k; k += slices * engine_.depth)
        for (int64_t row = 0; row < call_.m; row += height)
          multiplyBlockOfA(pieceFrom(row, height, {0, call_.m}),
                           pieceFrom(col, width, {0, call_.n}),
                           pieceFrom(k, slices * engine_.depth, {0, call_.k}), shared);
  }

  void multiplyBlockOfA(const Range& rows, const Range& cols, const Range& depths, bool shared) {
    const int64_t tiles = (rows.size + engine_.rows - 1) / engine_.rows;
    const int64_t sliceBytes = tiles * panelOfABytes();
    const int64_t panelBytes = panelOfBBytes(engine_.depth);
    char* packed = scratch_.block;
    for (int64_t k = depths.begin; k < depths.end(); k += engine_.depth, packed += sliceBytes)
      packRows(rows, pieceFrom(k, engine_.depth, depths), panelOfABytes(), packed);
    char* panel = scratch_.panels;
    for (int64_t col = cols.begin; col < cols.end(); col += engine_.cols) {
      const Range tile = pieceFrom(col, engine_.cols, cols);
      packed = scratch_.block;
      for (int64_t k = depths.begin; k < depths.end(); k += engine_.depth, packed += sliceBytes) {
        const Range slice = pieceFrom(k, engine_.depth, depths);
        const bool isPacked = shared && rows.begin > 0;
        if (!isPacked) engine_.packB(call_.b.at(k, col), slice.size, tile.size, panel);
        const bool lastSlice = slice.end() == depths.end();
        const Range next = pieceFrom(lastSlice ? depths.begin : slice.end(), engine_.depth, depths);
        multiplyColumns(rows, tile, slice, packed, panel,
                        isPacked ? fetchPacked(panel + panelBytes, slice.size)
                                 : fetchPanelOfB(next, lastSlice ? tile.end() : col, slice.size));
      }
      if (shared) panel += panelBytes;
    }
  }

  void multiplyColumns(const Range& rows, const Range& cols, const Range& slice, const char* packed,
                       const char* panel, PanelFetch next) {
    for (int64_t row = rows.begin; row < rows.end(); row += engine_.rows) {
      multiplyTile(pieceFrom(row, engine_.rows, rows), cols, slice, packed, panel, next.take());
      packed += panelOfABytes();
    }
  }

  // In the order in which a lies in memory: along its rows, or some columns at a time.
  void packRows(const Range& rows, const Range& slice, int64_t panelBytes, char* packed) const {
    const auto pack = byRows() ? engine_.packByRows : engine_.packByColumns;
    const int64_t step = byRows() ? slice.size : kPackedDepths;
    for (int64_t k = 0; k < slice.size; k += step) {
      char* panel = packed;
      for (int64_t row = rows.begin; row < rows.end(); row += engine_.rows) {
        pack(call_.a.at(row, slice.begin + k), k, std::min(step, slice.size - k),
             std::min(engine_.rows, rows.end() - row), panel);
        panel += panelBytes;
      }
    }
  }

  // For an engine so fast that a block of b has to come from the second-level cache, in order. Rows
  // are taken so many at a time that there is room for their panels, and for their sums until they
  // are rounded. Panels of a are packed once for all blocks of b, unless the sums of all blocks
  // would have to be kept: then they are packed again for each.
  void runByBlocksOfB() {
    const bool blocksOutermost = call_.n <= engine_.blockCols || (kRounds && !oneSlice());
    const int64_t height = GemmBlocking::kAmxHeight;
    for (int64_t row = 0; row < call_.m; row += height) {
      const Range rows = pieceFrom(row, height, {0, call_.m});
      if (blocksOutermost)
        multiplyBlockByBlock(rows);
      else
        multiplySliceBySlice(rows);
    }
  }

  // Panels of rows are packed right before their only use. Columns are packed as they lie in
  // memory, across all rows: 20 % of such a product.
  void multiplyBlockByBlock(const Range& block) {
    const int64_t height = byRows() ? engine_.rows : block.size;
    for (int64_t col = 0; col < call_.n; col += engine_.blockCols)
      for (int64_t k = 0; k < call_.k; k += engine_.depth) {
        const Range cols = colsOfBlock(col), slice = sliceFrom(k);
        packCols(cols, slice);
        for (int64_t row = block.begin; row < block.end(); row += height) {
          const Range rows = pieceFrom(row, height, block);
          packRows(rows, slice, packedPanelBytes(slice), scratch_.panels);
          multiplyPanels(rows, cols, slice);
        }
      }
  }

  void multiplySliceBySlice(const Range& rows) {
    for (int64_t k = 0; k < call_.k; k += engine_.depth) {
      const Range slice = sliceFrom(k);
      packRows(rows, slice, packedPanelBytes(slice), scratch_.panels);
      for (int64_t col = 0; col < call_.n; col += engine_.blockCols) {
        packCols(colsOfBlock(col), slice);
        multiplyPanels(rows, colsOfBlock(col), slice);
      }
    }
  }

  // Of a, without the padding between rows.
  int64_t packedPanelBytes(const Range& slice) const {
    return engine_.rows * packedDepth(slice) * engine_.packedElementBytes;
  }
  Range colsOfBlock(int64_t col) const { return pieceFrom(col, engine_.blockCols, {0, call_.n}); }
  Range sliceFrom(int64_t k) const { return pieceFrom(k, engine_.depth, {0, call_.k}); }

  void multiplyPanels(const Range& block, const Range& cols, const Range& slice) {
    const char* panel = scratch_.panels;
    for (int64_t row = block.begin; row < block.end(); row += engine_.rows) {
      const Range rows = pieceFrom(row, engine_.rows, block);
      for (int64_t k = slice.begin; k < slice.end(); k += engine_.strip)
        multiplyStrip(rows, cols, slice, pieceFrom(k, engine_.strip, slice), panel);
      panel += packedPanelBytes(slice);
      if constexpr (kRounds)
        if (slice.end() == call_.k) storeRounded(stagedRows(row), rows, cols);
    }
  }

  void storeRounded(const Sum* sums, const Range& rows, const Range& cols) const {
    C* c = call_.c + rows.begin * call_.ldc + cols.begin;
    if constexpr (std::is_same_v<C, Bf16>)
      if (call_.pastCaches)
        return rowsNarrowPastCaches(sums, stripCols(), rows.size, cols.size, c, call_.ldc);
    rowsNarrow(sums, stripCols(), rows.size, cols.size, c, call_.ldc);
  }

  // The sums of a tile's rows in scratch, of a block of b.
  Sum* stagedRows(int64_t row) const {
    return scratch_.staged + (oneSlice() ? 0 : row % GemmBlocking::kAmxHeight * stripCols());
  }

  // Some depths of a packed slice.
  void multiplyStrip(const Range& rows, const Range& cols, const Range& slice, const Range& strip,
                     const char* panel) {
    const int64_t first = strip.begin - slice.begin;
    const char* a = panel + engine_.rows * first * engine_.packedElementBytes;
    const char* b = scratch_.block + panelOfBBytes(first);
    for (int64_t col = cols.begin; col < cols.end(); col += engine_.cols) {
      multiplyTile(rows, pieceFrom(col, engine_.cols, cols), strip, a, b, {});
      b += panelOfBBytes(packedDepth(slice));
    }
  }

  // In the order in which b lies in memory: down its columns, or some rows at a time across them.
  void packCols(const Range& cols, const Range& slice) const {
    const int64_t step = call_.b.colStride == 1 ? kPackedDepths : slice.size;
    for (int64_t k = 0; k < slice.size; k += step) {
      char* panel = scratch_.block + panelOfBBytes(k);
      for (int64_t col = cols.begin; col < cols.end(); col += engine_.cols) {
        engine_.packB(call_.b.at(slice.begin + k, col), std::min(step, slice.size - k),
                      std::min(engine_.cols, cols.end() - col), panel);
        panel += panelOfBBytes(packedDepth(slice));
      }
    }
  }

  // While tiles of `depth` are multiplied.
  PanelFetch fetchPanelOfB(const Range& slice, int64_t col, int64_t depth) const {
    if (col >= call_.n) return {};
    return {call_.b.at(slice.begin, col), slice.size, std::min(engine_.cols, call_.n - col), depth};
  }
  PanelFetch fetchPacked(const char* panel, int64_t depth) const {
    const MatrixRef<char> lines{panel, kLineBytes, 1};
    return {lines, panelOfBBytes(depth) / kLineBytes, kLineBytes, depth};
  }

  // The tile may stick out over the edge of c.
  void multiplyTile(const Range& rows, const Range& cols, const Range& depths, const char* a,
                    const char* b, const LineFetch& next) {
    const bool accumulate = call_.accumulate || depths.begin > 0;
    const auto& heights = byRows() ? engine_.multiplyByRows : engine_.multiplyByColumns;
    const auto multiply = heights[static_cast<size_t>((rows.size - 1) / engine_.heightStep)];
    C* c = call_.c + rows.begin * call_.ldc + cols.begin;
    Sum* edge = scratch_.edge;
    if constexpr (!kRounds) {
      if (rows.size % engine_.heightStep == 0 && cols.size == engine_.cols)
        return multiply(packedDepth(depths), a, b, c, call_.ldc, accumulate, next);
      if (accumulate) copyTile(c, call_.ldc, rows.size, cols.size, edge, engine_.cols);
      multiply(packedDepth(depths), a, b, edge, engine_.cols, accumulate, next);
      copyTile(edge, engine_.cols, rows.size, cols.size, c, call_.ldc);
    } else if (engine_.blockCols > 0) {
      Sum* sums = stagedRows(rows.begin) + cols.begin % engine_.blockCols;
      multiply(packedDepth(depths), a, b, sums, stripCols(), accumulate, next);
    } else {
      multiply(packedDepth(depths), a, b, edge, engine_.cols, accumulate, next);
      rowsNarrow(edge, engine_.cols, rows.size, cols.size, c, call_.ldc);
    }
  }

  static void copyTile(const Sum* from, int64_t fromStride, int64_t rows, int64_t cols, Sum* to,
                       int64_t toStride) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * fromStride, cols, to + i * toStride);
  }
};

// A product that is rounded: by blocks of b; else tile by tile if all depths are in one slice; else
// summed in scratch, some rows and columns at a time.
template <typename T>
void multiplyRounded(const GemmEngine<T, float>& engine, const GemmCall<T, T>& call,
                     const Scratch<float>& scratch) {
  if (engine.blockCols > 0 || call.k <= engine.depth)
    return Product<T, T>(engine, call, scratch).run();
  const int64_t height = GemmBlocking::kStagedRows, width = GemmBlocking::kStagedCols;
  for (int64_t col = 0; col < call.n; col += width)
    for (int64_t row = 0; row < call.m; row += height) {
      const int64_t m = std::min(height, call.m - row), n = std::min(width, call.n - col);
      const GemmCall<T, float> part = {
          m, n, call.k, call.a.at(row, 0), call.b.at(0, col), scratch.staged, n, false};
      Product<T, float>(engine, part, scratch).run();
      rowsNarrow(scratch.staged, n, m, n, call.c + row * call.ldc + col, call.ldc);
    }
}

// What a thread needs to be worth waking: 2 MFLOP, about 10 us.
constexpr int64_t kFlopsPerPiece = 2'000'000;

struct Split {
  int pieces;
  bool byColumns;
  int64_t step;  // a border between pieces is a multiple of this
};

// Along the longer side, so that threads pack the smaller matrix more than once.
template <typename T, typename C>
Split splitOf(const GemmCall<T, C>& call, int threads) {
  const auto& engine = engineOf<T>();
  const int64_t flops = 2 * call.m * call.n * call.k;
  const int64_t most = std::min<int64_t>(threads, program::kMaxKernelThreads);
  const int64_t wanted = std::clamp<int64_t>(flops / kFlopsPerPiece, 1, most);
  const int64_t colTiles = (call.n + engine.cols - 1) / engine.cols;
  const int64_t rowTiles = (call.m + engine.rows - 1) / engine.rows;
  const bool byColumns = call.n >= call.m;
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

template <typename T>
const std::vector<const GemmEngine<T, SumOf<T>>*>& gemmEngines() {
  static const auto engines = findEngines<T>();
  return engines;
}

template <typename T, typename C>
void gemmBy(const GemmEngine<T, SumOf<T>>& engine, const GemmCall<T, C>& call, void* scratch) {
  const auto parts = divideScratch(scratch, call);
  if (engine.begin != nullptr) engine.begin();
  if constexpr (std::is_same_v<C, SumOf<T>>)
    Product<T, C>(engine, call, parts).run();
  else
    multiplyRounded(engine, call, parts);
  if (engine.end != nullptr) engine.end();
}

template <typename T, typename C>
void gemm(const GemmCall<T, C>& call, void* scratch) {
  gemmBy(engineOf<T>(), call, scratch);
}

template <typename T, typename C>
void parallelGemm(const GemmCall<T, C>& whole, ThreadPool& pool, void* scratch) {
  constexpr int64_t kBeyondCaches = int64_t{32} << 20;
  GemmCall<T, C> call = whole;
  call.pastCaches = call.m * call.n * int64_t{sizeof(C)} >= kBeyondCaches;
  const Split split = splitOf(call, pool.numThreads());
  if (split.pieces == 1) return gemm(call, scratch);
  const int64_t bytes = program::gemmScratchBytes(call.shape());
  pool.run(split.pieces, [&](int piece) {
    gemm(pieceOf(call, split, piece), static_cast<char*>(scratch) + piece * bytes);
  });
}

#define TRIREME_GEMM(T, C)                                                            \
  template void gemmBy(const GemmEngine<T, SumOf<T>>&, const GemmCall<T, C>&, void*); \
  template void gemm(const GemmCall<T, C>&, void*);                                   \
  template void parallelGemm(const GemmCall<T, C>&, ThreadPool&, void*)
TRIREME_GEMM(float, float);
TRIREME_GEMM(double, double);
TRIREME_GEMM(Bf16, float);
TRIREME_GEMM(Bf16, Bf16);
TRIREME_GEMM(F16, float);
TRIREME_GEMM(F16, F16);
#undef TRIREME_GEMM

template const std::vector<const GemmEngine<float, float>*>& gemmEngines<float>();
template const std::vector<const GemmEngine<double, double>*>& gemmEngines<double>();
template const std::vector<const GemmEngine<Bf16, float>*>& gemmEngines<Bf16>();
template const std::vector<const GemmEngine<F16, float>*>& gemmEngines<F16>();

}  // namespace trireme::runtime
