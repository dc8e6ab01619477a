// Matrix products on the host: f64, f32, and bf16 and f16 summed in f32, in a fixed order of
// summation. A matrix unit for bf16 multiplies f32 too, in parts (gemm_amx.cpp).
//
// Element (i, j) of the product is summed over k in order, in blocks of a fixed depth, whatever the
// sizes, the place of the element and the number of threads. So results do not depend on how a
// matrix is divided, neither over threads nor over ranks.
//
// Blocking as in Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 2008: a block of one factor is packed into the second-level cache, and panels of the other pass
// through it.
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

// c[m, n] = a[m, k] b[k, n], or += if accumulate. Rows of c are ldc apart. A product of 16
// bits is rounded once, and so does not accumulate.
template <typename T, typename C = T>
struct GemmCall {
  int64_t m, n, k;
  MatrixRef<T> a, b;
  C* c;
  int64_t ldc;
  bool accumulate;
  // Nobody reads c before it has left the caches: it may be written past them.
  bool pastCaches = false;

  program::GemmShape shape() const { return {m, n, k, sizeof(T), sizeof(C) < 4}; }
};

// (T, C) is (double, double), (float, float), or (T, float) or (T, T) with T of 16 bits.

// On the calling thread. `scratch` holds program::gemmScratchBytes(call.shape()).
template <typename T, typename C>
void gemm(const GemmCall<T, C>& call, void* scratch);

// On the pool; decides itself about pastCaches. `scratch` holds
// program::parallelGemmScratchBytes(call.shape()).
template <typename T, typename C>
void parallelGemm(const GemmCall<T, C>& call, ThreadPool& pool, void* scratch);

}  // namespace trireme::runtime
