// The engines of the AMX matrix unit, which multiplies bf16 and sums in f32; a tile of c is four
// tile registers. Factors in f32 are split into three bf16 each, a = a0 + a1 + a2, whose 24 bits
// are those of an f32. Of the nine products the six largest are summed: what is left out is at most
// 2^-23 of |a b|, as much as one rounding of a sum. Henry, Tang, Heinecke, "Leveraging the bfloat16
// Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019. Exceptions to
// f32: a factor below 2^-110 loses bits, one that is not finite or beyond 3.39e38 makes the sums
// NaN.
//
// Panels of a and of b consist of squares of 16 rows of 64 bytes. For each 32 depths there are
// those of the first parts of 32 rows (columns), then of the second parts, then of the third:
//   a: 16 rows, of 32 depths each
//   b: 16 pairs of depths, of 16 columns each
#include "runtime/kernels/gemm_engine.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>

#define TRIREME_AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))

namespace trireme::runtime {
namespace {

using program::GemmBlocking;

constexpr int64_t kSide = 32, kStep = 32;  // of a tile of c; depths of a square
constexpr int64_t kSquare = 16 * kStep;    // elements
constexpr int64_t kRowBytes = 2 * kStep;   // of a square
template <typename T>
constexpr int kParts = std::is_same_v<T, float> ? 3 : 1;
constexpr int64_t kPartOfStep = 2 * kSquare;  // elements of one part of kStep depths

static_assert(kSide * GemmBlocking::kAmxDepth * 2 <= GemmBlocking::kPanelBytes);
static_assert(kSide * GemmBlocking::kAmxSplitDepth * 6 <= GemmBlocking::kPanelBytes);
static_assert(kSide * kSide * 4 <= GemmBlocking::kEdgeBytes);

// Linux grants the tile registers' state only to a process that asks for it.
bool requestTileState() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, startRow = 0;
  uint8_t reserved[14] = {};
  uint16_t columnBytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// In static memory: GCC 12 believes that the instruction reads 8 bytes and drops other stores.
const TileConfig kTileConfig;

TRIREME_AMX void beginTiles() { _tile_loadconfig(&kTileConfig); }
TRIREME_AMX void endTiles() { _tile_release(); }

// Tile registers: 0 to 3 hold c, 4 and 5 the rows of a part of a, 6 and 7 the columns of one of b.
TRIREME_AMX inline void loadSums(const float* c, int64_t ldc) {
  _tile_loadd(0, c, ldc * 4);
  _tile_loadd(1, c + 16, ldc * 4);
  _tile_loadd(2, c + 16 * ldc, ldc * 4);
  _tile_loadd(3, c + 16 * ldc + 16, ldc * 4);
}
TRIREME_AMX inline void zeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
TRIREME_AMX inline void storeSums(float* c, int64_t ldc) {
  _tile_stored(0, c, ldc * 4);
  _tile_stored(1, c + 16, ldc * 4);
  _tile_stored(2, c + 16 * ldc, ldc * 4);
  _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
}
// Loads a part of a, or of b, and adds its products with the part of the other that is there; each
// load in time for its own two products.
TRIREME_AMX inline void multiplyByA(const Bf16* step, int part) {
  _tile_loadd(4, step + part * kPartOfStep, kRowBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, step + part * kPartOfStep + kSquare, kRowBytes);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
TRIREME_AMX inline void multiplyByB(const Bf16* step, int part) {
  _tile_loadd(6, step + part * kPartOfStep, kRowBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(2, 5, 6);
  _tile_loadd(7, step + part * kPartOfStep + kSquare, kRowBytes);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(3, 5, 7);
}

// Rows of a tile of c, two lines each. Weights' gradients come from memory, and the processor does
// not see ahead which 32 rows are next: their products take 13 % less time so. Where the sums stay
// in the second-level cache it costs 1 to 2 %.
inline void fetchRows(const float* c, int64_t ldc, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    __builtin_prefetch(c + row * ldc, 1, 2);
    __builtin_prefetch(c + row * ldc + 16, 1, 2);
  }
}

template <typename T>
TRIREME_AMX void multiplyTiles(int64_t depth, const void* aPanel, const void* bPanel, float* c,
                               int64_t ldc, bool accumulate, LineFetch) {
  const auto* a = static_cast<const Bf16*>(aPanel);
  const auto* b = static_cast<const Bf16*>(bPanel);
  if (accumulate)
    loadSums(c, ldc);
  else
    zeroSums();
  constexpr int kLast = kParts<T> - 1;
  const int64_t rowsPerStep = (kSide * kStep + depth - 1) / depth;
  for (int64_t k = 0, row = 0; k < depth; k += kStep, row += rowsPerStep) {
    _tile_loadd(6, b, kRowBytes);
    _tile_loadd(7, b + kSquare, kRowBytes);
    multiplyByA(a, kLast);
    if constexpr (kLast == 2) {
      multiplyByA(a, 1);
      multiplyByB(b, 1);
      multiplyByA(a, 0);
      multiplyByB(b, 2);
      multiplyByB(b, 0);
    }
    a += kParts<T> * kPartOfStep;
    b += kParts<T> * kPartOfStep;
    fetchRows(c + kSide, ldc, row, std::min(row + rowsPerStep, kSide));  // of the next tile
  }
  storeSums(c, ldc);
}

constexpr uint32_t firstLanes(int64_t lanes) {
  return static_cast<uint32_t>((uint64_t{1} << std::clamp<int64_t>(lanes, 0, 32)) - 1);
}

// A word is the pair of two depths, the lower one in its lower half. Words of one part are stored
// as 64 bytes of a square, at `to`; those of the next part kPartOfStep further.
typedef uint16_t Line __attribute__((vector_size(64), may_alias));
typedef uint16_t Halves __attribute__((vector_size(32), may_alias));
typedef uint32_t Words __attribute__((vector_size(64), may_alias));
typedef float Floats __attribute__((vector_size(64)));

TRIREME_AMX inline Words upper(Halves halves) {
  return __builtin_convertvector(halves, Words) << 16;
}
TRIREME_AMX inline Floats load(const float* from, uint32_t lanes) {
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), from);
}
// Takes the next part off `rest`.
TRIREME_AMX inline Halves takePart(Floats& rest) {
  const auto part = (Halves)_mm512_cvtneps_pbh((__m512)rest);
  rest -= (Floats)upper(part);
  return part;
}

// 32 depths of one row or column, which are adjacent in memory.
TRIREME_AMX inline void storeLine(const Bf16* from, int64_t depth, Bf16* to) {
  _mm512_store_si512(to, _mm512_maskz_loadu_epi16(firstLanes(depth), from));
}
TRIREME_AMX inline void storeLine(const float* from, int64_t depth, Bf16* to) {
  for (int half = 0; half < 2; ++half) {
    Floats rest = load(from + 16 * half, firstLanes(depth) >> (16 * half));
    for (int part = 0; part < kParts<float>; ++part)
      *reinterpret_cast<Halves*>(to + part * kPartOfStep + 16 * half) = takePart(rest);
  }
}

TRIREME_AMX inline void storeWords(Halves even, Halves odd, Bf16* to) {
  *reinterpret_cast<Words*>(to) = __builtin_convertvector(even, Words) | upper(odd);
}
// Two depths of 32 rows or columns, which are adjacent in memory: 16 words for the first square, at
// `to`, and 16 for the second.
TRIREME_AMX inline void storePair(const Bf16* even, uint32_t evenLanes, const Bf16* odd,
                                  uint32_t oddLanes, Bf16* to) {
  const auto e = (Line)_mm512_maskz_loadu_epi16(evenLanes, even);
  const auto o = (Line)_mm512_maskz_loadu_epi16(oddLanes, odd);
  *reinterpret_cast<Line*>(to) =
      __builtin_shufflevector(e, o, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40,
                              9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  *reinterpret_cast<Line*>(to + kSquare) =
      __builtin_shufflevector(e, o, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                              24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}
TRIREME_AMX inline void storePair(const float* even, uint32_t evenLanes, const float* odd,
                                  uint32_t oddLanes, Bf16* to) {
  for (int half = 0; half < 2; ++half) {
    Floats e = load(even + 16 * half, evenLanes >> (16 * half));
    Floats o = load(odd + 16 * half, oddLanes >> (16 * half));
    for (int part = 0; part < kParts<float>; ++part)
      storeWords(takePart(e), takePart(o), to + half * kSquare + part * kPartOfStep);
  }
}

// Of the lanes of 128 bits of both.
TRIREME_AMX inline Words evenLanes(Words x, Words y) {
  return __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
TRIREME_AMX inline Words oddLanes(Words x, Words y) {
  return __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// Transposes the 16 x 16 words of a square, in place: words within lanes of 128 bits, then lanes.
TRIREME_AMX inline void transposeSquare(Bf16* square) {
  auto* rows = reinterpret_cast<Words*>(square);
  Words r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = rows[i];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                   13, 29);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                       14, 30, 15, 31);
  }
  // Afterwards lane l of r[4 q + w] is word 4 l + w of rows 4 q to 4 q + 3.
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const Words low = t[i / 2 * 4 + i % 2], high = t[i / 2 * 4 + i % 2 + 2];
    r[2 * i] = __builtin_shufflevector(low, high, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13,
                                       28, 29);
    r[2 * i + 1] = __builtin_shufflevector(low, high, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27,
                                           14, 15, 30, 31);
  }
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w) {
    const Words even01 = evenLanes(r[w], r[4 + w]), odd01 = oddLanes(r[w], r[4 + w]);
    const Words even23 = evenLanes(r[8 + w], r[12 + w]), odd23 = oddLanes(r[8 + w], r[12 + w]);
    rows[w] = evenLanes(even01, even23);
    rows[4 + w] = evenLanes(odd01, odd23);
    rows[8 + w] = oddLanes(even01, even23);
    rows[12 + w] = oddLanes(odd01, odd23);
  }
}

// A square from 16 rows of `a` (or columns of b, seen as rows): `rows` and `depth` of them are
// there, the rest is zero.
template <typename T>
TRIREME_AMX void storeLines(const MatrixRef<T>& a, int64_t depth, int64_t rows, Bf16* square) {
  for (int64_t i = 0; i < 16; ++i)
    storeLine(a.data + (i < rows ? i * a.rowStride : 0), i < rows ? depth : 0, square + i * kStep);
}

enum class SquareOf { kA, kB };

// 32 adjacent elements.
template <typename T>
inline void fetchLines(const T* from) {
  for (int64_t i = 0; i < kSide; i += kLineBytes / int64_t{sizeof(T)})
    __builtin_prefetch(from + i, 0, 2);
}

// Two squares, of 32 rows. Panels of a are as narrow as these, and the processor does not see ahead
// what lies a row of the matrix further: without fetching, products of f32 take 10 % longer, and
// 60 % if such a row has 200 kB. Those of b are packed along its rows.
template <typename T, SquareOf kOf>
TRIREME_AMX void storePairs(const MatrixRef<T>& a, int64_t depth, int64_t rows, Bf16* squares) {
  constexpr int64_t kAhead = 16;
  const uint32_t lanes = firstLanes(rows);
  for (int64_t k = 0; k < kStep; k += 2) {
    if (kOf == SquareOf::kA && k + kAhead < depth)
      for (int64_t i : {k, k + 1}) fetchLines(a.data + (i + kAhead) * a.colStride);
    const T* even = a.data + (k < depth ? k * a.colStride : 0);
    const T* odd = k + 1 < depth ? even + a.colStride : even;
    storePair(even, k < depth ? lanes : 0, odd, k + 1 < depth ? lanes : 0, squares + k / 2 * kStep);
  }
}

// rows x depth of `a`, filled up with zeros to whole squares. Lines are read 16 at a time to their
// ends: as many streams as the processor fetches ahead; 32 at a time cost 5 % of a product.
template <typename T, SquareOf kOf>
TRIREME_AMX void packLines(const MatrixRef<T>& a, int64_t depth, int64_t rows, Bf16* panel) {
  const bool byLines = a.colStride == 1;
  constexpr int64_t kPanelStep = kParts<T> * kPartOfStep;
  if (byLines)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t left = std::max<int64_t>(0, rows - 16 * half);
      for (int64_t k = 0; k < depth; k += kStep)
        storeLines<T>(left > 0 ? a.at(16 * half, k) : a.at(0, k), depth - k, left,
                      panel + half * kSquare + k / kStep * kPanelStep);
    }
  else
    for (int64_t k = 0; k < depth; k += kStep)
      storePairs<T, kOf>(a.at(0, k), depth - k, rows, panel + k / kStep * kPanelStep);
  if (byLines == (kOf == SquareOf::kB))
    for (int64_t k = 0; k < depth; k += kStep)
      for (int square = 0; square < 2 * kParts<T>; ++square)
        transposeSquare(panel + k / kStep * kPanelStep + square * kSquare);
}

template <typename T>
void packA(const MatrixRef<T>& a, int64_t first, int64_t depth, int64_t rows, void* panel) {
  packLines<T, SquareOf::kA>(a, depth, rows, static_cast<Bf16*>(panel) + first * kSide * kParts<T>);
}
template <typename T>
void packB(const MatrixRef<T>& b, int64_t depth, int64_t cols, void* panel) {
  packLines<T, SquareOf::kB>(b.transposed(), depth, cols, static_cast<Bf16*>(panel));
}

template <typename T>
constexpr GemmEngine<T, float> engine() {
  constexpr bool kSplit = kParts<T> == 3;
  GemmEngine<T, float> e = {};
  e.rows = e.cols = e.heightStep = kSide;
  e.depth = kSplit ? GemmBlocking::kAmxSplitDepth : GemmBlocking::kAmxDepth;
  e.strip = kSplit ? 128 : 384;  // so that this much of a panel of a fits the first-level cache
  e.depthMultiple = kStep;
  e.packedElementBytes = 2 * kParts<T>;
  e.blockCols = kSplit ? GemmBlocking::kAmxSplitCols : GemmBlocking::kAmxCols;
  e.packByRows = e.packByColumns = packA<T>;
  e.multiplyByRows = e.multiplyByColumns = {multiplyTiles<T>};
  e.packB = packB<T>;
  e.begin = beginTiles;
  e.end = endTiles;
  return e;
}

bool hasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;
  return (d & kTile) != 0 && (d & kBf16) != 0 && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         requestTileState();
}

template <typename T>
const GemmEngine<T, float>* engineIfPresent() {
  static const bool has = hasAmx();
  static const auto made = engine<T>();
  return has ? &made : nullptr;
}

}  // namespace

const GemmEngine<Bf16, float>* amxEngine() { return engineIfPresent<Bf16>(); }
const GemmEngine<float, float>* amxSplitEngine() { return engineIfPresent<float>(); }

}  // namespace trireme::runtime

#else

namespace trireme::runtime {
const GemmEngine<Bf16, float>* amxEngine() { return nullptr; }
const GemmEngine<float, float>* amxSplitEngine() { return nullptr; }
}  // namespace trireme::runtime

#endif
