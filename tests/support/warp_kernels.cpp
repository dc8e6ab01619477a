// The GPU's kernels in the form in which nvcc compiles them, with blocks of fibers. What CUDA has
// built in is here; a product on tensor cores is written after the PTX ISA (8.0, "Matrix Fragments
// for mma.m16n8k16 with floating point type"), not after the code under test.
//
// Sanitizers cannot follow fibers: there are none then.
#if TRIREME_SANITIZED
#include "tests/support/emulated_gpu.h"

const std::map<std::string, trireme::testing::EmulatedKernel>& trireme::testing::warpKernels() {
  static const std::map<std::string, EmulatedKernel> none;
  return none;
}
#else
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/emulated_gpu.h"
#include "tests/support/warp.h"

// The headers that both forms share, before names change.
#include "runtime/device/cuda/kernels/args.h"
#include "runtime/kernels/bf16.h"

#define TRIREME_WARPS_OF_FIBERS 1
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define threadIdx (::trireme::BlockIndex{::trireme::block().thread()})
#define blockIdx (::trireme::BlockIndex{::trireme::block().index()})
#define blockDim (::trireme::BlockIndex{::trireme::block().numThreads()})
#define gridDim (::trireme::BlockIndex{::trireme::block().numBlocks()})

namespace trireme {
namespace {

using testing::ThreadBlock;

ThreadBlock& block() { return ThreadBlock::current(); }

struct BlockIndex {
  explicit BlockIndex(int i) : x(static_cast<unsigned>(i)) {}
  unsigned x;
};

template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  return block().gather(value)[static_cast<size_t>(block().lane() ^ distance)];
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return block().gather(value)[static_cast<size_t>(lane % ThreadBlock::kLanes)];
}
unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  const auto all = block().gather(vote);
  for (size_t i = 0; i < all.size(); ++i) votes |= (all[i] ? 1u : 0u) << i;
  return votes;
}
int __ffs(int bits) { return __builtin_ffs(bits); }
void __syncwarp() { block().gather('\0'); }
void __syncthreads() { block().wait(); }

// d = a b + c of fragments: row-major a 16 x 16, column-major b 16 x 8, both in T; c 16 x 8 in f32.
struct Fragments {
  uint32_t a[4], b[2];
};
template <typename T>
float halfOf(uint32_t pair, int half) {
  return runtime::toFloat(T{static_cast<uint16_t>(half == 0 ? pair : pair >> 16)});
}
template <typename T>
void multiplyAddTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto all = block().gather(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  // a_i: row = groupID for 0 <= i < 2 || 4 <= i < 6, else groupID + 8;
  //      col = threadID_in_group * 2 + (i & 1) for i < 4, + 8 for i >= 4. Registers hold pairs.
  const auto elementOfA = [&](int row, int col) {
    const int i = (row >= 8 ? 2 : 0) + (col >= 8 ? 4 : 0) + col % 2;
    const auto lane = static_cast<size_t>(row % 8 * 4 + col % 8 / 2);
    return halfOf<T>(all[lane].a[i / 2], i % 2);
  };
  // b_i: row = threadID_in_group * 2 + (i & 1) for i < 2, + 8 for i >= 2; col = groupID.
  const auto elementOfB = [&](int row, int col) {
    const int i = (row >= 8 ? 2 : 0) + row % 2;
    return halfOf<T>(all[static_cast<size_t>(col * 4 + row % 8 / 2)].b[i / 2], i % 2);
  };
  // c_i: row = groupID for i < 2, else groupID + 8; col = threadID_in_group * 2 + (i & 1).
  const int lane = block().lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + (i < 2 ? 0 : 8), col = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) c[i] += elementOfA(row, k) * elementOfB(k, col);
  }
}

template <typename T>
uint32_t roundedPair(float low, float high) {
  uint16_t bits[2];
  for (int i = 0; i < 2; ++i) {
    const float x = i == 0 ? low : high;
    if constexpr (std::is_same_v<T, runtime::F16>)
      bits[i] = runtime::toF16(x).bits;
    else
      bits[i] = runtime::toBf16(x).bits;
  }
  return bits[0] | static_cast<uint32_t>(bits[1]) << 16;
}
float exp2Of(float x) { return std::exp2(x); }

// ldmatrix .x4: threads 8 m to 8 m + 7 hold the addresses of the rows of matrix m. Of each matrix a
// thread gets the pair threadIdx % 4 of row threadIdx / 4; with .trans of column threadIdx / 4.
std::array<const uint16_t*, ThreadBlock::kLanes> rowsOfMatrices(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) testing::addWarpFault("ldmatrix: alignment");
  return block().gather(static_cast<const uint16_t*>(row));
}
void loadMatrices(uint32_t (&to)[4], const void* row) {
  const auto rows = rowsOfMatrices(row);
  const int lane = block().lane();
  for (int m = 0; m < 4; ++m) {
    const uint16_t* from = rows[static_cast<size_t>(8 * m + lane / 4)] + lane % 4 * 2;
    to[m] = from[0] | static_cast<uint32_t>(from[1]) << 16;
  }
}
void loadTransposed(uint32_t (&to)[4], const void* row) {
  const auto rows = rowsOfMatrices(row);
  const int lane = block().lane();
  for (int m = 0; m < 4; ++m) {
    const auto first = static_cast<size_t>(8 * m + lane % 4 * 2);
    to[m] = rows[first][lane / 4] | static_cast<uint32_t>(rows[first + 1][lane / 4]) << 16;
  }
}

// Copies that are under way, group by group, per thread: done when a thread has to wait for them,
// and not before. Until then NaN is where they go to.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  size_t bytes;
};
std::map<int, std::vector<std::vector<Copy>>>& copiesUnderWay() {
  static std::map<int, std::vector<std::vector<Copy>>> copies;
  return copies;
}
template <int kBytes>
void startCopy(void* to, const void* from) {
  const auto isAligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kBytes == 0; };
  if (!isAligned(to) || !isAligned(from)) testing::addWarpFault("cp.async: alignment");
  auto& groups = copiesUnderWay()[block().thread()];
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({to, from, kBytes});
  std::memset(to, 0xFF, kBytes);
}
void endCopies() {
  auto& groups = copiesUnderWay()[block().thread()];
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}
// All but the last group that was ended; behind it is the one that was not.
void waitForCopies() {
  auto& groups = copiesUnderWay()[block().thread()];
  while (groups.size() > 2) {
    for (const Copy& copy : groups.front()) {
      std::memset(copy.to, 0, copy.bytes);
      if (copy.from != nullptr) std::memcpy(copy.to, copy.from, copy.bytes);
    }
    groups.erase(groups.begin());
  }
}

std::map<std::string, testing::EmulatedKernel>& registry() {
  static std::map<std::string, testing::EmulatedKernel> kernels;
  return kernels;
}

// Two blocks of three warps, so that each has its own share of the work.
struct WarpKernel {
  template <typename Args>
  WarpKernel(const char* name, void (*function)(const Args&)) {
    registry()[name] = {sizeof(Args), [name, function](const void* args) {
                          constexpr int kBlocks = 2, kWarps = 3;
                          ThreadBlock threads(kWarps);
                          for (int i = 0; i < kBlocks; ++i) {
                            copiesUnderWay().clear();
                            threads.run([&] { function(*static_cast<const Args*>(args)); }, i,
                                        kBlocks);
                            if (!threads.converged()) testing::addWarpFault(name);
                          }
                        }};
  }
};

}  // namespace

const std::map<std::string, testing::EmulatedKernel>& testing::warpKernels() { return registry(); }

}  // namespace trireme

#define TRIREME_KERNEL(name, Args, function) \
  static const ::trireme::WarpKernel kWarpKernel_##name(#name, +[](const Args& a) { function(a); });
#define TRIREME_BLOCK_KERNEL TRIREME_KERNEL
#define TRIREME_TILE_KERNEL(name, Args, function, warps, blocks) \
  TRIREME_KERNEL(name, Args, function)
#include "runtime/device/cuda/kernels/all.cu"
#endif
