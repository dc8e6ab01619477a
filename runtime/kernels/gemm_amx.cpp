// The engine of the AMX matrix unit: bf16 factors, f32 sums, a tile of c in four tile registers.
//   a: 32 rows of bf16, kRowStride apart
//   b: for each 32 depths, two squares of 16 pairs of depths by 16 columns, pairs adjacent
#include "runtime/kernels/gemm_engine.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/kernels/transpose.h"

#define TRIREME_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace trireme::runtime {
namespace {

using program::GemmBlocking;
using program::roundUp;

constexpr int64_t kRows = 32, kCols = 32, kStep = 32;
constexpr int64_t kRowStride = GemmBlocking::kAmxDepth + GemmBlocking::kPad;
constexpr int64_t kSquare = 16 * 16 * 2;  // elements of a square of b
static_assert(kRows * kRowStride * 2 <= GemmBlocking::kPanelBytes);
static_assert(kRows * kCols * 4 <= GemmBlocking::kEdgeBytes);

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

TRIREME_AMX void multiplyTiles(int64_t depth, const void* aPanel, const void* bPanel, float* c,
                               int64_t ldc, bool accumulate, NextOperands& next) {
  const auto* a = static_cast<const Bf16*>(aPanel);
  const auto* b = static_cast<const Bf16*>(bPanel);
  const int64_t cStride = ldc * 4;
  if (accumulate) {
    _tile_loadd(0, c, cStride);
    _tile_loadd(1, c + 16, cStride);
    _tile_loadd(2, c + 16 * ldc, cStride);
    _tile_loadd(3, c + 16 * ldc + 16, cStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kStep) {
    next.c.step();
    _tile_loadd(4, a + k, kRowStride * 2);
    _tile_loadd(6, b + k * kCols, 64);
    _tile_loadd(7, b + k * kCols + kSquare, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 16 * kRowStride + k, kRowStride * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, cStride);
  _tile_stored(1, c + 16, cStride);
  _tile_stored(2, c + 16 * ldc, cStride);
  _tile_stored(3, c + 16 * ldc + 16, cStride);
}

void packByRows(const MatrixRef<Bf16>& a, int64_t first, int64_t depth, int64_t rows, void* out) {
  const int64_t packedDepth = roundUp(depth, kStep);
  for (int64_t i = 0; i < kRows; ++i) {
    Bf16* row = static_cast<Bf16*>(out) + i * kRowStride + first;
    const int64_t filled = i < rows ? depth : 0;
    std::copy_n(a.data + i * a.rowStride, filled, row);
    std::fill(row + filled, row + packedDepth, Bf16{0});
  }
}

void packByColumns(const MatrixRef<Bf16>& a, int64_t first, int64_t depth, int64_t rows,
                   void* out) {
  const int64_t packedDepth = roundUp(depth, kStep);
  const int64_t squareRows = rows / 8 * 8, squareDepth = depth / 8 * 8;
  auto* panel = static_cast<Bf16*>(out) + first;
  for (int64_t k = 0; k < squareDepth; k += 8)
    for (int64_t i = 0; i < squareRows; i += 8)
      transpose8x8(&a.data[k * a.colStride + i].bits, a.colStride, &panel[i * kRowStride + k].bits,
                   kRowStride);
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t k = i < squareRows ? squareDepth : 0; k < packedDepth; ++k) {
      const bool inside = i < rows && k < depth;
      panel[i * kRowStride + k] = inside ? a.data[k * a.colStride + i] : Bf16{0};
    }
}

// Depths [k, k + 2) of 16 columns: 32 adjacent elements.
void packPair(const MatrixRef<Bf16>& b, int64_t k, int64_t depth, int64_t cols, Bf16* pair) {
  for (int64_t j = 0; j < 16; ++j)
    for (int64_t odd = 0; odd < 2; ++odd) {
      const bool inside = j < cols && k + odd < depth;
      pair[2 * j + odd] = inside ? b.data[(k + odd) * b.rowStride + j * b.colStride] : Bf16{0};
    }
}

// The same for whole rows that are contiguous.
void interleavePair(const Bf16* even, const Bf16* odd, Bf16* pair) {
  using V = uint16_t __attribute__((vector_size(16)));
  for (int64_t j = 0; j < 16; j += 8) {
    V e, o;
    std::memcpy(&e, even + j, sizeof(V));
    std::memcpy(&o, odd + j, sizeof(V));
    const V out[2] = {__builtin_shufflevector(e, o, 0, 8, 1, 9, 2, 10, 3, 11),
                      __builtin_shufflevector(e, o, 4, 12, 5, 13, 6, 14, 7, 15)};
    std::memcpy(pair + 2 * j, out, sizeof(out));
  }
}

void packSquare(const MatrixRef<Bf16>& b, int64_t depth, int64_t cols, Bf16* square) {
  const bool whole = depth >= kStep && cols >= 16;
  if (whole && b.rowStride == 1) {
    // A pair is 32 bits of a contiguous column, so this is a transposition of 16 x 16 words.
    for (int64_t k = 0; k < 16; k += 4)
      for (int64_t j = 0; j < 16; j += 4)
        transpose4x4(b.data + j * b.colStride + 2 * k, 2 * b.colStride, square + (k * 16 + j) * 2,
                     64);
    return;
  }
  for (int64_t k = 0; k < kStep; k += 2) {
    if (whole)
      interleavePair(b.data + k * b.rowStride, b.data + (k + 1) * b.rowStride, square + k * 16);
    else
      packPair(b, k, depth, cols, square + k * 16);
  }
}

void packB(const MatrixRef<Bf16>& b, int64_t depth, int64_t cols, void* out) {
  auto* panel = static_cast<Bf16*>(out);
  for (int64_t k = 0; k < depth; k += kStep)
    for (int64_t half = 0; half < 2; ++half)
      packSquare(b.at(k, 16 * half), depth - k, std::max<int64_t>(0, cols - 16 * half),
                 panel + k * kCols + half * kSquare);
}

constexpr GemmEngine<Bf16, float> kEngine = {
    kRows,      kCols,      kRows,         GemmBlocking::kAmxDepth, kStep,           2,
    true,       packByRows, packByColumns, {multiplyTiles},         {multiplyTiles}, packB,
    beginTiles, endTiles};

bool hasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;
  return (d & kTile) != 0 && (d & kBf16) != 0 && requestTileState();
}

}  // namespace

const GemmEngine<Bf16, float>* amxEngine() {
  static const bool has = hasAmx();
  return has ? &kEngine : nullptr;
}

}  // namespace trireme::runtime

#else

namespace trireme::runtime {
const GemmEngine<Bf16, float>* amxEngine() { return nullptr; }
}  // namespace trireme::runtime

#endif
