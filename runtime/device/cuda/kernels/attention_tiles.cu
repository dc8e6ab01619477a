// Causal attention in bf16 or f16 on tensor cores, for heads of 64, 96 and 128; other heads and types take
// the plain kernels (attention.cu), whose formulas these are. A block takes a tile of queries
// (forward, dq) or of keys (dk and dv), 16 to a warp, and goes over the partners, in order: no
// atomics, repeatable bit by bit. Partners come to the block's shared memory while those before
// them are worked on. Probabilities and the scores' gradients are rounded to that type for the
// second product, as FlashAttention-2 does (Dao 2023, arXiv:2307.08691, algorithms 1 and 2).
#include "runtime/device/cuda/kernels/attention_head.h"
#include "runtime/device/cuda/kernels/tiles.h"

namespace trireme::runtime::cuda {
namespace {

constexpr int kRows = 16;  // of a warp
constexpr float kLog2E = 1.44269504F;

constexpr int kPartners = 32;  // in shared memory at once

// Of scores; a constant, once compiled.
template <int D>
TRIREME_DEVICE float scoreScale() {
  return static_cast<float>(1 / sqrtOf(static_cast<double>(D)));
}

// Positions of one head, those of a block. Tiles with most partners come first, so that none is
// left at the end: of queries the last, of keys the first.
struct Tile {
  int head;  // of `heads` per sample
  int batch;
  int first;  // position
};
TRIREME_DEVICE int tilesOf(int64_t sequence) {
  const int rows = kRows * warpsOfTile();
  return static_cast<int>((sequence + rows - 1) / rows);
}
TRIREME_DEVICE Tile tileOf(int index, const OpArgs& a, int64_t heads, bool isLastFirst) {
  const int perHead = tilesOf(a.sequence), tile = index % perHead;
  const int row = index / perHead, all = static_cast<int>(heads);
  return {row % all, row / all,
          (isLastFirst ? perHead - 1 - tile : tile) * kRows * warpsOfTile()};
}
// f(tile) for all tiles of so many heads per sample, a block each.
template <typename F>
TRIREME_DEVICE void forEachTile(const OpArgs& a, int64_t heads, bool isLastFirst, F f) {
  const int count = tilesOf(a.sequence) * static_cast<int>(heads * a.batch);
  forEachBlockRow(count, [&](int index) { f(tileOf(index, a, heads, isLastFirst)); });
}
TRIREME_DEVICE Head queryHead(const OpArgs& a, const Tile& tile) {
  return {a, tile.batch, tile.head / a.headsPerGroup, tile.head % a.headsPerGroup};
}

// The rows of a head in one operand, by position; null beyond the sequence.
template <typename T>
struct Rows {
  T* data;
  int first, stride, count;
  TRIREME_DEVICE T* at(int position) const {
    return position < count ? data + (first + int64_t{position} * stride) : nullptr;
  }
};
template <typename T, typename F>
TRIREME_DEVICE Rows<T> rowsOf(const Head& at, int i, F of) {
  const int64_t first = of(0);
  return {operand<T>(at.a, i), static_cast<int>(first), static_cast<int>(of(1) - first),
          static_cast<int>(at.a.sequence)};
}
template <typename T>
TRIREME_DEVICE Rows<T> queriesOf(const Head& at, int i) {
  return rowsOf<T>(at, i, [&](int64_t p) { return at.q(p); });
}
template <typename T>
TRIREME_DEVICE Rows<T> keysOf(const Head& at, int i) {
  return rowsOf<T>(at, i, [&](int64_t p) { return at.k(p); });
}
template <typename T>
TRIREME_DEVICE Rows<T> valuesOf(const Head& at, int i) {
  return rowsOf<T>(at, i, [&](int64_t p) { return at.v(p); });
}
template <typename T>
TRIREME_DEVICE Rows<T> outputsOf(const Head& at, int i) {
  return rowsOf<T>(at, i, [&](int64_t p) { return at.ctx(p); });
}
// A number per query.
TRIREME_DEVICE Rows<float> logSumsOf(const Head& at) {
  return {operand<float>(at.a, 2), static_cast<int>(at.lse(0)), 1,
          static_cast<int>(at.a.sequence)};
}
TRIREME_DEVICE Rows<float> deltasOf(const Head& at) {
  return {at.a.deltas, static_cast<int>(at.lse(0)), 1, static_cast<int>(at.a.sequence)};
}
TRIREME_DEVICE float orZero(const float* x) { return x == nullptr ? 0.0F : *x; }

TRIREME_DEVICE float keepScale(const OpArgs& a) { return static_cast<float>(a.keepScale); }

template <typename T, int D>
struct KeyStage {
  SharedTile<T, kPartners, D> keys, values;
};
template <typename T, int D>
struct QueryStage {
  SharedTile<T, kPartners, D> queries, gradients;
  SharedNumbers<kPartners> logSums, deltas;
};

// use(first, stage) for the keys that a tile of queries sees.
template <typename T, int D, typename U>
TRIREME_DEVICE void forKeysOf(const Head& at, const Tile& tile, U use) {
  const Rows<const T> keys = keysOf<const T>(at, 0), values = valuesOf<const T>(at, 0);
  const int end = static_cast<int>(smaller(tile.first + kRows * warpsOfTile(), at.a.sequence));
  const auto load = [&](int first, KeyStage<T, D>& stage) {
    stage.keys.load([&](int i) { return keys.at(first + i); });
    stage.values.load([&](int i) { return values.at(first + i); });
  };
  forEachStage<KeyStage<T, D>>(0, end, kPartners, load, use);
}

template <typename T, int D>
struct Forward {
  Factor<T, D / 16> queries;
  Sums<D / 8> out;
  PerRow max, sum;
};

template <bool kDrops, typename T, int D>
TRIREME_DEVICE void addKeys(const Head& at, int query, int first, const KeyStage<T, D>& stage,
                            Forward<T, D>& of) {
  const float scale = scoreScale<D>() * kLog2E;
  Sums<kPartners / 8> scores;
  scores.addByRows(of.queries, stage.keys, 0);
  if (first + kPartners > query + 1)
    scores.forEach([&](TileRow row, int n, float& x) {
      if (first + n > query + row.index) x = lowest<float>();
    });
  const PerRow tileMax = scores.rowMax(), oldMax = of.max;
  of.max.fill([&](TileRow row) { return largerOf(oldMax.at(row), tileMax.at(row)); });
  PerRow rescale, lowered;
  rescale.fill([&](TileRow row) { return exp2Of((oldMax.at(row) - of.max.at(row)) * scale); });
  lowered.fill([&](TileRow row) { return -of.max.at(row) * scale; });
  scores.forEach(
      [&](TileRow row, int, float& x) { x = exp2Of(multiplyAdd(x, scale, lowered.at(row))); });
  const PerRow tileSum = scores.rowSum(), oldSum = of.sum;
  of.sum.fill([&](TileRow row) {
    return multiplyAdd(oldSum.at(row), rescale.at(row), tileSum.at(row));
  });
  if constexpr (kDrops)
    scores.forEach([&](TileRow row, int n, float& x) {
      x = at.keeps(query + row.index, first + n) ? x * keepScale(at.a) : 0.0F;
    });
  of.out.forEach([&](TileRow row, int, float& x) { x *= rescale.at(row); });
  of.out.addByColumns(scores.template toFactor<T>(), stage.values, 0);
}

template <typename T, int D, bool kDrops>
TRIREME_DEVICE void attentionTiles(const OpArgs& a) {
  forEachTile(a, a.groups * a.headsPerGroup, true, [&](const Tile& tile) {
    const Head at = queryHead(a, tile);
    const Rows<const T> queries = queriesOf<const T>(at, 0);
    const Rows<T> outputs = outputsOf<T>(at, 1);
    const Rows<float> logSums = logSumsOf(at);
    PerWarp<Forward<T, D>> warps;
    warps.forEach([&](int warp, Forward<T, D>& of) {
      of.queries.load([&](int i) { return queries.at(tile.first + kRows * warp + i); });
      of.max.fill([](TileRow) { return lowest<float>(); });
    });
    forKeysOf<T, D>(at, tile, [&](int first, const KeyStage<T, D>& stage) {
      warps.forEach([&](int warp, Forward<T, D>& of) {
        const int query = tile.first + kRows * warp;
        if (first < query + kRows) addKeys<kDrops>(at, query, first, stage, of);
      });
    });
    warps.forEach([&](int warp, Forward<T, D>& of) {
      const int query = tile.first + kRows * warp;
      of.out.forEach([&](TileRow row, int, float& x) { x /= of.sum.at(row); });
      of.out.template storeRows<T>([&](int i) { return outputs.at(query + i); });
      PerRow::forEach([&](TileRow row) {
        if (float* const to = logSums.at(query + row.index); to != nullptr)
          *to = of.max.at(row) * scoreScale<D>() + logOf(of.sum.at(row));
      });
    });
  });
}

template <typename T, int D>
struct QueryGrad {
  Factor<T, D / 16> queries, gradients;
  Sums<D / 8> dq;
  PerRow logSum, delta;  // times log2 e; times the scores' scale
};

template <bool kDrops, typename T, int D>
TRIREME_DEVICE void addKeys(const Head& at, int query, int first, const KeyStage<T, D>& stage,
                            QueryGrad<T, D>& of) {
  const float scale = scoreScale<D>();
  Sums<kPartners / 8> scores, products;
  scores.addByRows(of.queries, stage.keys, 0);
  products.addByRows(of.gradients, stage.values, 0);
  if constexpr (kDrops)
    products.forEach([&](TileRow row, int n, float& x) {
      x = at.keeps(query + row.index, first + n) ? x * keepScale(at.a) : 0.0F;
    });
  scores.forEach([&](TileRow row, int, float& x) {
    x = exp2Of(multiplyAdd(x, scale * kLog2E, -of.logSum.at(row)));
  });
  if (first + kPartners > query + 1)
    scores.forEach([&](TileRow row, int n, float& x) {
      if (first + n > query + row.index) x = 0;
    });
  scores.combine(products, [&](TileRow row, int, float p, float g) {
    return p * multiplyAdd(g, scale, -of.delta.at(row));
  });
  of.dq.addByColumns(scores.template toFactor<T>(), stage.keys, 0);
}

// qkv, ctx, lse, dctx -> the q part of dqkv, deltas. The sum over the keys of P G' is dctx.ctx.
template <typename T, int D, bool kDrops>
TRIREME_DEVICE void attentionGradQueryTiles(const OpArgs& a) {
  forEachTile(a, a.groups * a.headsPerGroup, true, [&](const Tile& tile) {
    const Head at = queryHead(a, tile);
    const Rows<const T> queries = queriesOf<const T>(at, 0), outputs = outputsOf<const T>(at, 1),
                        gradients = outputsOf<const T>(at, 3);
    const Rows<T> results = queriesOf<T>(at, 4);
    const Rows<float> logSums = logSumsOf(at), deltas = deltasOf(at);
    PerWarp<QueryGrad<T, D>> warps;
    warps.forEach([&](int warp, QueryGrad<T, D>& of) {
      const int query = tile.first + kRows * warp;
      Factor<T, D / 16> out;
      of.queries.load([&](int i) { return queries.at(query + i); });
      of.gradients.load([&](int i) { return gradients.at(query + i); });
      out.load([&](int i) { return outputs.at(query + i); });
      const PerRow products = of.gradients.dotRows(out);
      of.delta.fill([&](TileRow row) { return products.at(row) * scoreScale<D>(); });
      of.logSum.fill([&](TileRow row) { return orZero(logSums.at(query + row.index)) * kLog2E; });
      PerRow::forEach([&](TileRow row) {
        if (float* const to = deltas.at(query + row.index); to != nullptr) *to = of.delta.at(row);
      });
    });
    forKeysOf<T, D>(at, tile, [&](int first, const KeyStage<T, D>& stage) {
      warps.forEach([&](int warp, QueryGrad<T, D>& of) {
        const int query = tile.first + kRows * warp;
        if (first < query + kRows) addKeys<kDrops>(at, query, first, stage, of);
      });
    });
    warps.forEach([&](int warp, QueryGrad<T, D>& of) {
      of.dq.template storeRows<T>([&](int i) { return results.at(tile.first + kRows * warp + i); });
    });
  });
}

// Rows of the tiles are keys, columns are queries.
template <typename T, int D>
struct KeyGrad {
  Factor<T, D / 16> keys, values;
  Sums<D / 8> dk, dv;
};

// The 16 queries from `first + column` on. Of queries beyond the sequence all numbers are zeros.
template <bool kDrops, typename T, int D>
TRIREME_DEVICE void addQueries(const Head& at, int key, int first, int column,
                               const QueryStage<T, D>& stage, KeyGrad<T, D>& of) {
  const float scale = scoreScale<D>();
  const int query = first + column;
  Sums<2> scores, products;
  scores.addByRows(of.keys, stage.queries, column);
  scores.forEach([&](TileRow, int n, float& x) {
    x = exp2Of(multiplyAdd(x, scale * kLog2E, -stage.logSums.at(column + n) * kLog2E));
  });
  if (query < key + kRows)
    scores.forEach([&](TileRow row, int n, float& x) {
      if (query + n < key + row.index) x = 0;
    });
  Sums<2> kept = scores;
  if constexpr (kDrops) {  // a sign says what is dropped, which takes no registers
    scores.forEach([&](TileRow row, int n, float& x) {
      if (!at.keeps(query + n, key + row.index)) x = -x;
    });
    kept.combine(scores, [&](TileRow, int, float, float p) {
      return p < 0 ? 0.0F : p * keepScale(at.a);
    });
  }
  of.dv.addByColumns(kept.template toFactor<T>(), stage.gradients, column);
  products.addByRows(of.values, stage.gradients, column);
  scores.combine(products, [&](TileRow, int n, float p, float g) {
    if constexpr (kDrops) {
      g = p < 0 ? 0.0F : g * keepScale(at.a);
      p = p < 0 ? -p : p;
    }
    return p * multiplyAdd(g, scale, -stage.deltas.at(column + n));
  });
  of.dk.addByColumns(scores.template toFactor<T>(), stage.queries, column);
}

// The k and v parts of dqkv, of all query heads of the group; needs deltas.
template <typename T, int D, bool kDrops>
TRIREME_DEVICE void attentionGradKeyTiles(const OpArgs& a) {
  forEachTile(a, a.groups, false, [&](const Tile& tile) {
    Head at{a, tile.batch, tile.head, 0};
    const Rows<const T> keys = keysOf<const T>(at, 0), values = valuesOf<const T>(at, 0);
    PerWarp<KeyGrad<T, D>> warps;
    warps.forEach([&](int warp, KeyGrad<T, D>& of) {
      const int key = tile.first + kRows * warp;
      of.keys.load([&](int i) { return keys.at(key + i); });
      of.values.load([&](int i) { return values.at(key + i); });
    });
    for (; at.head < a.headsPerGroup; ++at.head) {
      const Rows<const T> queries = queriesOf<const T>(at, 0), gradients = outputsOf<const T>(at, 3);
      const Rows<float> logSums = logSumsOf(at), deltas = deltasOf(at);
      const auto load = [&](int first, QueryStage<T, D>& stage) {
        stage.queries.load([&](int i) { return queries.at(first + i); });
        stage.gradients.load([&](int i) { return gradients.at(first + i); });
        stage.logSums.load([&](int i) { return logSums.at(first + i); });
        stage.deltas.load([&](int i) { return deltas.at(first + i); });
      };
      const auto use = [&](int first, const QueryStage<T, D>& stage) {
        warps.forEach([&](int warp, KeyGrad<T, D>& of) {
          const int key = tile.first + kRows * warp;
          for (int column = 0; column < kPartners; column += kRows)
            if (first + column + kRows > key) addQueries<kDrops>(at, key, first, column, stage, of);
        });
      };
      forEachStage<QueryStage<T, D>>(tile.first, static_cast<int>(a.sequence), kPartners, load,
                                     use);
    }
    at.head = 0;
    const Rows<T> dk = keysOf<T>(at, 4), dv = valuesOf<T>(at, 4);
    warps.forEach([&](int warp, KeyGrad<T, D>& of) {
      const int key = tile.first + kRows * warp;
      of.dk.template storeRows<T>([&](int i) { return dk.at(key + i); });
      of.dv.template storeRows<T>([&](int i) { return dv.at(key + i); });
    });
  });
}

}  // namespace

// Warps of a block as runtime/device/cuda/op_launch.cpp says; blocks on a multiprocessor.
#define TRIREME_ATTENTION_TILES(size, type, T, dropout, drops, warps, blocks)                     \
  TRIREME_TILE_KERNEL(attention##dropout##_tiles_##size##_##type, OpArgs,                         \
                      (attentionTiles<T, size, drops>), warps, blocks)                            \
  TRIREME_TILE_KERNEL(attention_grad_query##dropout##_tiles_##size##_##type, OpArgs,              \
                      (attentionGradQueryTiles<T, size, drops>), warps, blocks)                   \
  TRIREME_TILE_KERNEL(attention_grad_key##dropout##_tiles_##size##_##type, OpArgs,                \
                      (attentionGradKeyTiles<T, size, drops>), warps, blocks)
#define TRIREME_ATTENTION_TYPES(size, warps, blocks)                             \
  TRIREME_ATTENTION_TILES(size, bf16, Bf16, , false, warps, blocks)              \
  TRIREME_ATTENTION_TILES(size, bf16, Bf16, _dropout, true, warps, 1)            \
  TRIREME_ATTENTION_TILES(size, f16, F16, , false, warps, blocks)                \
  TRIREME_ATTENTION_TILES(size, f16, F16, _dropout, true, warps, 1)

TRIREME_ATTENTION_TYPES(64, 6, 2)
TRIREME_ATTENTION_TYPES(96, 8, 1)
TRIREME_ATTENTION_TYPES(128, 8, 1)

}  // namespace trireme::runtime::cuda
