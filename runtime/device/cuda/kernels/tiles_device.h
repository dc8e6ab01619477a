// tiles.h on tensor cores: mma.sync.m16n8k16 with factors of 16 bits and f32 sums, of sm_80 and
// later.
//
// Lane l = 4 g + t holds (PTX ISA, "Matrix Fragments for mma.m16n8k16")
//   of a factor's 16 x 16: rows g and g + 8, columns 2 t, 2 t + 1 and those + 8, two to a register
//   of b's 16 x 8:         column g, rows 2 t, 2 t + 1 and those + 8
//   of the sums' 16 x 8:   rows g and g + 8, columns 2 t, 2 t + 1
// So two tiles of sums side by side are a factor's 16 x 16 without any exchange.
#pragma once
#include <cstdint>
#include <type_traits>

namespace trireme::runtime::cuda {
inline namespace on_device {

TRIREME_DEVICE int laneGroup() { return laneIndex() >> 2; }
TRIREME_DEVICE int laneColumn() { return (laneIndex() & 3) * 2; }

// Row g or g + 8 of this lane.
struct TileRow {
  int index;
  int half;
};
TRIREME_DEVICE TileRow tileRow(int half) { return {laneGroup() + 8 * half, half}; }

template <typename T>
TRIREME_DEVICE uint32_t twoAt(const T* row, int column) {
  return row == nullptr ? 0u : *reinterpret_cast<const uint32_t*>(row + column);
}
template <typename T>
TRIREME_DEVICE uint32_t bitsAt(const T* row, int column) {
  return row == nullptr ? 0u : *reinterpret_cast<const uint16_t*>(row + column);
}
// In integers: around conversions by the machine ptxas runs out of registers for heads of 128.
TRIREME_DEVICE uint32_t roundedBits(Bf16*, float x) { return toBf16(x).bits; }
TRIREME_DEVICE uint32_t roundedBits(F16*, float x) { return toF16(x).bits; }
template <typename T>
TRIREME_DEVICE uint32_t roundedPair(float low, float high) {
  T* const type = nullptr;
  return roundedBits(type, low) | roundedBits(type, high) << 16;
}

#if defined(__CUDACC__)
// c += a b for a 16 x 16, b 16 x 8, both in T.
#define TRIREME_MULTIPLY_ADD_TILE(type)                                               \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <typename T>
TRIREME_DEVICE void multiplyAddTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, F16>)
    TRIREME_MULTIPLY_ADD_TILE("f16");
  else
    TRIREME_MULTIPLY_ADD_TILE("bf16");
}
#undef TRIREME_MULTIPLY_ADD_TILE
#endif

// Sums and maxima over the four lanes of a row.
TRIREME_DEVICE float sumOfRow(float sum) {
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  return sum + __shfl_xor_sync(kAllLanes, sum, 2);
}
TRIREME_DEVICE float maxOfRow(float largest) {
  largest = largerOf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  return largerOf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
}

class PerRow {
 public:
  TRIREME_DEVICE float at(TileRow row) const { return values_[row.half]; }
  // By all four lanes of a row alike.
  template <typename F>
  TRIREME_DEVICE void fill(F f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) values_[half] = f(tileRow(half));
  }
  template <typename F>
  TRIREME_DEVICE static void forEach(F f) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (laneColumn() == 0) f(tileRow(half));
  }

 private:
  float values_[2] = {};
};

template <int N>
class Sums;

template <typename T, int K>
class Factor {
 public:
  template <typename F>
  TRIREME_DEVICE void load(F rowAt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* row = rowAt(tileRow(half).index);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        values_[k][half] = twoAt(row, 16 * k + laneColumn());
        values_[k][half + 2] = twoAt(row, 16 * k + 8 + laneColumn());
      }
    }
  }

 private:
  template <int N>
  friend class Sums;
  uint32_t values_[K][4];
};

template <int N>
class Sums {
 public:
  template <typename F>
  TRIREME_DEVICE void forEach(F f) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) f(tileRow(i / 2), 8 * n + laneColumn() + i % 2, values_[n][i]);
  }
  template <typename T, int K, typename F>
  TRIREME_DEVICE void addByRows(const Factor<T, K>& a, F rowAt) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const T* row = rowAt(8 * n + laneGroup());
#pragma unroll
      for (int k = 0; k < K; ++k)
        multiplyAddTile<T>(values_[n], a.values_[k], twoAt(row, 16 * k + laneColumn()),
                           twoAt(row, 16 * k + 8 + laneColumn()));
    }
  }
  template <typename T, int K, typename F>
  TRIREME_DEVICE void addByColumns(const Factor<T, K>& a, F rowAt) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const T* rows[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i] = rowAt(16 * k + laneColumn() + i % 2 + 8 * (i / 2));
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int column = 8 * n + laneGroup();
        multiplyAddTile<T>(values_[n], a.values_[k],
                           bitsAt(rows[0], column) | bitsAt(rows[1], column) << 16,
                           bitsAt(rows[2], column) | bitsAt(rows[3], column) << 16);
      }
    }
  }
  template <typename F>
  TRIREME_DEVICE void combine(const Sums& other, F f) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values_[n][i] = f(tileRow(i / 2), values_[n][i], other.values_[n][i]);
  }
  template <typename T>
  TRIREME_DEVICE Factor<T, N / 2> toFactor() const {
    Factor<T, N / 2> factor;
#pragma unroll
    for (int k = 0; k < N / 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &values_[2 * k + i / 2][i % 2 * 2];
        factor.values_[k][i] = roundedPair<T>(pair[0], pair[1]);
      }
    return factor;
  }
  TRIREME_DEVICE PerRow rowMax() const {
    PerRow result;
    result.fill([&](TileRow row) {
      float largest = values_[0][2 * row.half];
#pragma unroll
      for (int n = 0; n < N; ++n)
        largest =
            largerOf(largerOf(largest, values_[n][2 * row.half]), values_[n][2 * row.half + 1]);
      return maxOfRow(largest);
    });
    return result;
  }
  TRIREME_DEVICE PerRow rowSum() const {
    PerRow result;
    result.fill([&](TileRow row) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) sum += values_[n][2 * row.half] + values_[n][2 * row.half + 1];
      return sumOfRow(sum);
    });
    return result;
  }

 private:
  float values_[N][4] = {};
};

}  // namespace on_device
}  // namespace trireme::runtime::cuda
