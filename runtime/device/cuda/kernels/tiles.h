// Tiles for tensor cores: products of bf16 or f16 with sums in f32, by a warp.
//
//   Factor<T, K> 16 rows of 16 K numbers in T
//   Sums<N>      16 rows of 8 N numbers in f32
//     forEach(f)             f(row, column, number&), each number once
//     addByRows(a, rowAt)    sums(i, n) += sum over k of a(i, k) b(n, k); rowAt(n) -> b(n, 0...)
//     addByColumns(a, rowAt) sums(i, n) += sum over k of a(i, k) b(k, n); rowAt(k) -> b(k, 0...)
//     combine(other, f)      number = f(row, number, number of `other`)
//     toFactor<T>()          rounded
//     rowMax(), rowSum()     PerRow
//   PerRow       one f32 per row of a tile
//
// rowAt() returns a pointer to the row's numbers, aligned to 4 bytes, or null: a row of zeros. As
// lanes.h: tiles_device.h for the GPU, tiles_host.h for tests.
#pragma once
#include "runtime/device/cuda/kernels/lanes.h"
#if defined(__CUDACC__) || defined(TRIREME_WARPS_OF_FIBERS)
#include "runtime/device/cuda/kernels/tiles_device.h"
#else
#include "runtime/device/cuda/kernels/tiles_host.h"
#endif
