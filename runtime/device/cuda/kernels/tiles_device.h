// tiles.h on tensor cores: mma.sync.m16n8k16 with factors of 16 bits and f32 sums, of sm_80 and
// later.
//
// Lane l = 4 g + t holds (PTX ISA, "Matrix Fragments for mma.m16n8k16")
//   of a factor's 16 x 16: rows g and g + 8, columns 2 t, 2 t + 1 and those + 8, two to a register
//   of b's 16 x 8:         column g, rows 2 t, 2 t + 1 and those + 8
//   of the sums' 16 x 8:   rows g and g + 8, columns 2 t, 2 t + 1
// So two tiles of sums side by side are a factor's 16 x 16 without any exchange, and ldmatrix reads
// b's from shared memory, four of its 8 x 8 at once, as they lie or transposed.
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

template <typename T>
TRIREME_DEVICE uint32_t roundedPair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, F16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// 2^x within two units of the last place.
TRIREME_DEVICE float exp2Of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

TRIREME_DEVICE uint32_t sharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// Four 8 x 8 of 16 bits, whose rows have 16 bytes: lane 8 m + i says where row i of the m-th is.
// Lane 4 g + t gets of each row g's numbers 2 t and 2 t + 1 or, transposed, those of column g in
// the rows 2 t and 2 t + 1.
TRIREME_DEVICE void loadMatrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}
TRIREME_DEVICE void loadTransposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}

// Starts copying kBytes (4 or 16) to shared memory; `from` null: zeros.
template <int kBytes>
TRIREME_DEVICE void startCopy(void* shared, const void* from) {
  const uint32_t to = sharedAddress(shared);
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(from == nullptr ? 0 : 16)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(from == nullptr ? 0 : 4)
                 : "memory");
}
// Ends a group of this thread's copies.
TRIREME_DEVICE void endCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last group are there.
TRIREME_DEVICE void waitForCopies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
#endif

TRIREME_DEVICE float multiplyAdd(float a, float b, float c) { return ::fmaf(a, b, c); }

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
