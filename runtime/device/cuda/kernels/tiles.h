// Tiles for tensor cores: products of bf16 or f16 with sums in f32, by a warp.
//
//   Factor<T, K> 16 rows of 16 K numbers in T
//     dotRows(other)         PerRow: the sum of the products of each row with that of `other`
//   Sums<N>      16 rows of 8 N numbers in f32
//     forEach(f)             f(row, column, number&), each number once
//     addByRows(a, b, first)     sums(i, n) += sum over k of a(i, k) b(first + n, k)
//     addByColumns(a, b, first)  sums(i, n) += sum over k of a(i, k) b(first + k, n)
//     combine(other, f)      number = f(row, column, number, number of `other`)
//     toFactor<T>()          rounded
//     storeRows<T>(rowAt)    rounded, to the rows that are not null
//     rowMax(), rowSum()     PerRow
//   PerRow       one f32 per row of a tile
//
// The second factor lies in memory that the warps of a block share:
//
//   SharedTile<T, R, C>  R rows of C numbers in T
//     load(rowAt)            starts copying them; rows that are null become zeros
//   SharedNumbers<N>     N numbers in f32
//     load(at)               the same of single numbers
//   forEachStage<Stage>(begin, end, step, load, use)
//                        load(first, stage) starts copying what use(first, stage) reads, for first
//                        = begin, begin + step... below end: one is copied while one is read. Stage
//                        is a struct of the above, of 24 KiB at most
//   PerWarp<V>           one V per warp of the block; forEach(f): f(warp, V&)
//   warpsOfTile()        how many warps a block has
//
// Of a Factor rowAt() returns a pointer to the row's numbers, aligned to 4 bytes, of a SharedTile
// to 16, or null: a row of zeros. As lanes.h: tiles_device.h for the GPU, tiles_host.h for tests.
#pragma once
#include "runtime/device/cuda/kernels/lanes.h"
#if defined(__CUDACC__) || defined(TRIREME_WARPS_OF_FIBERS)
#include "runtime/device/cuda/kernels/tiles_device.h"
#else
#include "runtime/device/cuda/kernels/tiles_host.h"
#endif
