// Causal attention in bf16 or f16 on tensor cores, for heads of 64, 96 and 128; other heads and types take
// the plain kernels (attention.cu), whose formulas these are. One warp per 16 queries (forward, dq)
// or 16 keys (dk and dv), which goes over the partners 32 at a time, in order: no atomics,
// repeatable bit by bit. Probabilities and the scores' gradients are rounded to that type for the
// second product, as FlashAttention-2 does (Dao 2023, arXiv:2307.08691, algorithms 1 and 2).
#include "runtime/device/cuda/kernels/attention_head.h"
#include "runtime/device/cuda/kernels/tiles.h"

namespace trireme::runtime::cuda {
namespace {

constexpr int kRows = 16;      // of a warp
constexpr int kPartners = 32;  // at a time: keys of queries
constexpr int kQueries = 16;   // and queries of keys, which need more registers

// The tile-th 16 positions of all heads, positions fastest.
struct Tile {
  int64_t head;  // of `heads` per sample
  int64_t batch;
  int64_t first;  // position
};
TRIREME_DEVICE Tile tileOf(int64_t tile, int64_t sequence, int64_t heads) {
  const int64_t perHead = (sequence + kRows - 1) / kRows, row = tile / perHead;
  return {row % heads, row / heads, tile % perHead * kRows};
}
TRIREME_DEVICE int64_t tilesOf(int64_t sequence, int64_t heads, int64_t batch) {
  return (sequence + kRows - 1) / kRows * heads * batch;
}
TRIREME_DEVICE Head queryHead(const OpArgs& a, const Tile& tile) {
  return {a, tile.batch, tile.head / a.headsPerGroup, tile.head % a.headsPerGroup};
}

// The row that `at` finds of a position; null beyond the sequence.
template <typename T, typename F>
TRIREME_DEVICE const T* rowOr0(int64_t position, int64_t sequence, const T* base, F at) {
  return position < sequence ? base + at(position) : nullptr;
}

template <typename T, int D>
TRIREME_DEVICE void attentionTiles(const OpArgs& a) {
  const T* qkv = operand<T>(a, 0);
  const int64_t heads = a.groups * a.headsPerGroup, s = a.sequence;
  forEachRow(tilesOf(s, heads, a.batch), [&](int64_t index) {
    const Tile tile = tileOf(index, s, heads);
    const Head at = queryHead(a, tile);
    const auto q = [&](int64_t p) { return at.q(p); };
    const auto k = [&](int64_t p) { return at.k(p); };
    const auto v = [&](int64_t p) { return at.v(p); };
    const float scale = scoreScale<float>(a);
    Factor<T, D / 16> queries;
    queries.load([&](int i) { return rowOr0(tile.first + i, s, qkv, q); });
    Sums<D / 8> out;
    PerRow max, sum, rescale;
    max.fill([](TileRow) { return lowest<float>(); });
    const int64_t end = smaller(tile.first + kRows, s);
    for (int64_t first = 0; first < end; first += kPartners) {
      Sums<kPartners / 8> scores;
      scores.addByRows(queries, [&](int n) { return rowOr0(first + n, s, qkv, k); });
      scores.forEach([&](TileRow row, int n, float& x) {
        x = first + n <= tile.first + row.index ? x * scale : lowest<float>();
      });
      const PerRow tileMax = scores.rowMax(), oldMax = max;
      max.fill([&](TileRow row) { return largerOf(oldMax.at(row), tileMax.at(row)); });
      rescale.fill([&](TileRow row) { return expOf(oldMax.at(row) - max.at(row)); });
      scores.forEach([&](TileRow row, int, float& x) { x = expOf(x - max.at(row)); });
      const PerRow tileSum = scores.rowSum(), oldSum = sum;
      sum.fill([&](TileRow row) { return oldSum.at(row) * rescale.at(row) + tileSum.at(row); });
      if (a.keepScale != 0)
        scores.forEach([&](TileRow row, int n, float& x) {
          x *= static_cast<float>(at.keep(tile.first + row.index, first + n));
        });
      out.forEach([&](TileRow row, int, float& x) { x *= rescale.at(row); });
      out.addByColumns(scores.template toFactor<T>(), [&](int n) { return rowOr0(first + n, s, qkv, v); });
    }
    out.forEach([&](TileRow row, int c, float& x) {
      const int64_t query = tile.first + row.index;
      if (query < s) store(operand<T>(a, 1)[at.ctx(query) + c], x / sum.at(row));
    });
    PerRow::forEach([&](TileRow row) {
      const int64_t query = tile.first + row.index;
      if (query < s) operand<float>(a, 2)[at.lse(query)] = max.at(row) + logOf(sum.at(row));
    });
  });
}

// qkv, ctx, lse, dctx -> the q part of dqkv
template <typename T, int D>
TRIREME_DEVICE void attentionGradQueryTiles(const OpArgs& a) {
  const T *qkv = operand<T>(a, 0), *dctx = operand<T>(a, 3);
  const int64_t heads = a.groups * a.headsPerGroup, s = a.sequence;
  forEachRow(tilesOf(s, heads, a.batch), [&](int64_t index) {
    const Tile tile = tileOf(index, s, heads);
    const Head at = queryHead(a, tile);
    const auto q = [&](int64_t p) { return at.q(p); };
    const auto k = [&](int64_t p) { return at.k(p); };
    const auto v = [&](int64_t p) { return at.v(p); };
    const auto ctx = [&](int64_t p) { return at.ctx(p); };
    const float scale = scoreScale<float>(a);
    Factor<T, D / 16> queries, dOut;
    queries.load([&](int i) { return rowOr0(tile.first + i, s, qkv, q); });
    dOut.load([&](int i) { return rowOr0(tile.first + i, s, dctx, ctx); });
    PerRow lse, delta;
    lse.fill([&](TileRow row) {
      const int64_t query = tile.first + row.index;
      return query < s ? operand<float>(a, 2)[at.lse(query)] : 0.0F;
    });
    delta.fill([&](TileRow row) {
      const int64_t query = tile.first + row.index;
      return query < s ? deltaOf<T, float>(at, query) : 0.0F;
    });
    Sums<D / 8> dq;
    const int64_t end = smaller(tile.first + kRows, s);
    for (int64_t first = 0; first < end; first += kPartners) {
      Sums<kPartners / 8> scores, products;
      scores.addByRows(queries, [&](int n) { return rowOr0(first + n, s, qkv, k); });
      products.addByRows(dOut, [&](int n) { return rowOr0(first + n, s, qkv, v); });
      if (a.keepScale != 0)
        products.forEach([&](TileRow row, int n, float& x) {
          x *= static_cast<float>(at.keep(tile.first + row.index, first + n));
        });
      scores.forEach([&](TileRow row, int n, float& x) {
        const bool seen = first + n <= tile.first + row.index;
        x = seen ? expOf(x * scale - lse.at(row)) * scale : 0.0F;
      });
      scores.combine(products,
                     [&](TileRow row, float x, float g) { return x * (g - delta.at(row)); });
      dq.addByColumns(scores.template toFactor<T>(), [&](int n) { return rowOr0(first + n, s, qkv, k); });
    }
    dq.forEach([&](TileRow row, int c, float& x) {
      const int64_t query = tile.first + row.index;
      if (query < s) store(operand<T>(a, 4)[at.q(query) + c], x);
    });
  });
}

// Of one tile of keys the v part of dqkv, the k part, or both. Rows of the tiles are keys, columns
// are queries.
template <typename T, int D, bool kOfValues, bool kOfKeys>
TRIREME_DEVICE void gradOfKeys(const OpArgs& a, const Tile& tile) {
  const T *qkv = operand<T>(a, 0), *dctx = operand<T>(a, 3);
  const int64_t s = a.sequence;
  Head at{a, tile.batch, tile.head, 0};
  const auto q = [&](int64_t p) { return at.q(p); };
  const auto k = [&](int64_t p) { return at.k(p); };
  const auto v = [&](int64_t p) { return at.v(p); };
  const auto ctx = [&](int64_t p) { return at.ctx(p); };
  const float scale = scoreScale<float>(a);
  Factor<T, D / 16> keys, values;
  keys.load([&](int i) { return rowOr0(tile.first + i, s, qkv, k); });
  if constexpr (kOfKeys) values.load([&](int i) { return rowOr0(tile.first + i, s, qkv, v); });
  Sums<D / 8> dk, dv;
  for (; at.head < a.headsPerGroup; ++at.head)
    for (int64_t first = tile.first; first < s; first += kQueries) {
      const auto keep = [&](TileRow row, int n, float& x) {
        x *= static_cast<float>(at.keep(first + n, tile.first + row.index));
      };
      PerLane<float> lse, delta;
      lse.fill([&](int lane) {
        const bool isThere = lane < kQueries && first + lane < s;
        return isThere ? operand<float>(a, 2)[at.lse(first + lane)] : 0.0F;
      });
      Sums<kQueries / 8> scores;
      scores.addByRows(keys, [&](int n) { return rowOr0(first + n, s, qkv, q); });
      scores.forEach([&](TileRow row, int n, float& x) {
        const float ofQuery = lse.at(n);
        const bool seen = tile.first + row.index <= first + n && first + n < s;
        x = seen ? expOf(x * scale - ofQuery) : 0.0F;
      });
      if constexpr (kOfValues) {
        Sums<kQueries / 8> dropped = scores;
        if (a.keepScale != 0) dropped.forEach(keep);
        dv.addByColumns(dropped.template toFactor<T>(), [&](int n) { return rowOr0(first + n, s, dctx, ctx); });
      }
      if constexpr (kOfKeys) {
        delta.fill([&](int lane) {
          const bool isThere = lane < kQueries && first + lane < s;
          return isThere ? deltaOf<T, float>(at, first + lane) : 0.0F;
        });
        Sums<kQueries / 8> products;
        products.addByRows(values, [&](int n) { return rowOr0(first + n, s, dctx, ctx); });
        if (a.keepScale != 0) products.forEach(keep);
        products.forEach([&](TileRow, int n, float& x) { x = (x - delta.at(n)) * scale; });
        scores.combine(products, [](TileRow, float p, float g) { return p * g; });
        dk.addByColumns(scores.template toFactor<T>(), [&](int n) { return rowOr0(first + n, s, qkv, q); });
      }
    }
  const auto storeRows = [&](Sums<D / 8>& sums, auto position) {
    sums.forEach([&](TileRow row, int c, float& x) {
      const int64_t key = tile.first + row.index;
      if (key < s) store(operand<T>(a, 4)[position(key) + c], x);
    });
  };
  at.head = 0;
  if constexpr (kOfKeys) storeRows(dk, k);
  if constexpr (kOfValues) storeRows(dv, v);
}

// The k and v parts of dqkv. Larger heads have no registers for both at once.
template <typename T, int D>
TRIREME_DEVICE void attentionGradKeyTiles(const OpArgs& a) {
  forEachRow(tilesOf(a.sequence, a.groups, a.batch), [&](int64_t index) {
    const Tile tile = tileOf(index, a.sequence, a.groups);
    if constexpr (D <= 64) {
      gradOfKeys<T, D, true, true>(a, tile);
    } else {
      gradOfKeys<T, D, true, false>(a, tile);
      gradOfKeys<T, D, false, true>(a, tile);
    }
  });
}

}  // namespace

#define TRIREME_ATTENTION_TILES(size, type, T)                                           \
  TRIREME_KERNEL(attention_tiles_##size##_##type, OpArgs, (attentionTiles<T, size>))     \
  TRIREME_KERNEL(attention_grad_query_tiles_##size##_##type, OpArgs,                     \
                 (attentionGradQueryTiles<T, size>))                                     \
  TRIREME_KERNEL(attention_grad_key_tiles_##size##_##type, OpArgs, (attentionGradKeyTiles<T, size>))

TRIREME_ATTENTION_TILES(64, bf16, Bf16)
TRIREME_ATTENTION_TILES(96, bf16, Bf16)
TRIREME_ATTENTION_TILES(128, bf16, Bf16)
TRIREME_ATTENTION_TILES(64, f16, F16)
TRIREME_ATTENTION_TILES(96, f16, F16)
TRIREME_ATTENTION_TILES(128, f16, F16)

}  // namespace trireme::runtime::cuda
