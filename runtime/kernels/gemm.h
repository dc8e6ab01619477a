// Matrix products on the host for f64 and f32, in a fixed order of summation.
//
// Element (i, j) of the product is summed over k in order, in blocks of kDepthBlock, whatever the
// sizes, the place of the element and the number of threads. So results do not depend on how a
// matrix is divided, neither over threads nor over ranks.
//
// Blocking as in Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 2008: a block of b is packed into the second-level cache, a panel of a into the first.
#pragma once
#include <cstdint>

#include "ir/program/workspace.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {

// Element (i, j) is at data[i * rowStride + j * colStride]; one of the strides is 1.
template <typename T>
struct MatrixRef {
  const T* data;
  int64_t rowStride, colStride;

  MatrixRef at(int64_t row, int64_t col) const {
    return {data + row * rowStride + col * colStride, rowStride, colStride};
  }
  MatrixRef transposed() const { return {data, colStride, rowStride}; }
};

template <typename T>
MatrixRef<T> rowMajor(const T* data, int64_t rowStride) {
  return {data, rowStride, 1};
}

// c[m, n] = a[m, k] b[k, n], or += if accumulate. Rows of c are ldc apart.
template <typename T>
struct GemmCall {
  int64_t m, n, k;
  MatrixRef<T> a, b;
  T* c;
  int64_t ldc;
  bool accumulate;
};

// On the calling thread. `scratch` holds program::gemmScratchBytes(n, k, sizeof(T)).
template <typename T>
void gemm(const GemmCall<T>& call, void* scratch);

// On the pool. `scratch` holds program::parallelGemmScratchBytes(n, k, sizeof(T)).
template <typename T>
void parallelGemm(const GemmCall<T>& call, ThreadPool& pool, void* scratch);

}  // namespace trireme::runtime
