// tiles.h on tensor cores: mma.sync.m16n8k16 with factors of 16 bits and f32 sums, of sm_80 and
// later. ptx_device.h says which lane holds what: so two tiles of sums side by side are a factor's
// 16 x 16 without any exchange, and ldmatrix reads b's from shared memory, four of its 8 x 8 at
// once, as they lie or transposed.
#pragma once
#include "runtime/device/cuda/kernels/ptx_device.h"

namespace trireme::runtime::cuda {
inline namespace on_device {

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

template <typename V>
class PerWarp {
 public:
  template <typename F>
  TRIREME_DEVICE void forEach(F f) {
    f(warpInBlock(), value_);
  }

 private:
  V value_;
};
TRIREME_DEVICE int warpsOfTile() { return warpsInBlock(); }

// 16 bytes behind each row, so that eight rows of 64, 96 or 128 numbers are in different banks.
template <typename T, int R, int C>
class SharedTile {
 public:
  template <typename F>
  TRIREME_DEVICE void load(F rowAt) {
    constexpr int kPiece = 8, kPieces = C / kPiece;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < R * kPieces;
         i += static_cast<int>(blockDim.x)) {
      const int column = i % kPieces * kPiece;
      const T* row = rowAt(i / kPieces);
      startCopy<16>(&values_[i / kPieces][column], row == nullptr ? nullptr : row + column);
    }
  }
  TRIREME_DEVICE const void* at(int row, int column) const { return &values_[row][column]; }

 private:
  alignas(16) T values_[R][C + 8];
};

template <int N>
class SharedNumbers {
 public:
  template <typename F>
  TRIREME_DEVICE void load(F at) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < N; i += static_cast<int>(blockDim.x))
      startCopy<4>(&values_[i], at(i));
  }
  TRIREME_DEVICE float at(int i) const { return values_[i]; }

 private:
  alignas(16) float values_[N];
};

template <typename Stage, typename L, typename U>
TRIREME_DEVICE void forEachStage(int begin, int end, int step, L load, U use) {
  __shared__ Stage stages[2];
  static_assert(sizeof(stages) <= 48 << 10);
  if (begin < end) load(begin, stages[0]);
  endCopies();
  int current = 0;
  for (int first = begin; first < end; first += step) {
    if (first + step < end) load(first + step, stages[current ^ 1]);
    endCopies();
    waitForCopies();
    __syncthreads();
    use(first, stages[current]);
    __syncthreads();  // The next copies take the place of what was read.
    current ^= 1;
  }
}

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
  TRIREME_DEVICE PerRow dotRows(const Factor& other) const {
    PerRow result;
    result.fill([&](TileRow row) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = row.half; i < 4; i += 2) {
          const uint32_t a = values_[k][i], b = other.values_[k][i];
          sum = multiplyAdd(numberOf(a), numberOf(b), sum);
          sum = multiplyAdd(numberOf(a >> 16), numberOf(b >> 16), sum);
        }
      return sumOfRow(sum);
    });
    return result;
  }

 private:
  template <int N>
  friend class Sums;
  TRIREME_DEVICE static float numberOf(uint32_t bits) {
    return value(T{static_cast<uint16_t>(bits)});
  }
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
  // Two steps of k at a time, for all columns, so that products which follow each other are of
  // different sums.
  template <typename T, int K, int R, int C>
  TRIREME_DEVICE void addByRows(const Factor<T, K>& a, const SharedTile<T, R, C>& b, int first) {
    static_assert(K % 2 == 0 && 8 * N <= R && 16 * K == C);
    const int row = first + laneIndex() % 8, column = laneIndex() / 8 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 2)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        uint32_t pairs[4];
        loadMatrices(pairs, b.at(row + 8 * n, column + 16 * k));
        multiplyAddTile<T>(values_[n], a.values_[k], pairs[0], pairs[1]);
        multiplyAddTile<T>(values_[n], a.values_[k + 1], pairs[2], pairs[3]);
      }
  }
  template <typename T, int K, int R, int C>
  TRIREME_DEVICE void addByColumns(const Factor<T, K>& a, const SharedTile<T, R, C>& b, int first) {
    static_assert(N % 2 == 0 && 16 * K <= R && 8 * N == C);
    const int row = first + laneIndex() % 16, column = laneIndex() / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        uint32_t pairs[4];
        loadTransposed(pairs, b.at(row + 16 * k, column + 8 * n));
        multiplyAddTile<T>(values_[n], a.values_[k], pairs[0], pairs[1]);
        multiplyAddTile<T>(values_[n + 1], a.values_[k], pairs[2], pairs[3]);
      }
  }
  template <typename F>
  TRIREME_DEVICE void combine(const Sums& other, F f) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values_[n][i] =
            f(tileRow(i / 2), 8 * n + laneColumn() + i % 2, values_[n][i], other.values_[n][i]);
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
  template <typename T, typename F>
  TRIREME_DEVICE void storeRows(F rowAt) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      T* const row = rowAt(tileRow(half).index);
      if (row == nullptr) continue;
#pragma unroll
      for (int n = 0; n < N; ++n)
        *reinterpret_cast<uint32_t*>(row + 8 * n + laneColumn()) =
            roundedPair<T>(values_[n][2 * half], values_[n][2 * half + 1]);
    }
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
