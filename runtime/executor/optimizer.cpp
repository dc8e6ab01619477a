#include "runtime/executor/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/kernels/bf16.h"

// AVX2 without FMA: contraction would make the result depend on the machine. The loop is bound by
// memory, so wider vectors would not help.
#if defined(__x86_64__) && defined(__GNUC__)
#define TRIREME_AVX2 __attribute__((target("avx2")))
#define TRIREME_INLINE inline __attribute__((always_inline))
#else
#define TRIREME_AVX2
#define TRIREME_INLINE inline
#endif

// The arrays of a step do not overlap, but for the master that may be the parameter, at one index.
#if defined(__clang__)
#define TRIREME_NO_CARRIED_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define TRIREME_NO_CARRIED_DEPENDENCE _Pragma("GCC ivdep")
#endif

namespace trireme::runtime {
namespace {

template <typename S>
struct Constants {
  S rate, beta1, beta2, rest1, rest2, epsilon, decay, scale, correct1, correct2;
  Constants(const AdamWStep& step, double weightDecay)
      : rate(static_cast<S>(step.learningRate)),
        beta1(static_cast<S>(step.beta1)),
        beta2(static_cast<S>(step.beta2)),
        rest1(static_cast<S>(1 - step.beta1)),
        rest2(static_cast<S>(1 - step.beta2)),
        epsilon(static_cast<S>(step.epsilon)),
        decay(static_cast<S>(weightDecay)),
        scale(static_cast<S>(step.gradientScale)),
        correct1(static_cast<S>(1 / (1 - powerOf(step.beta1, step.number)))),
        correct2(static_cast<S>(1 / (1 - powerOf(step.beta2, step.number)))) {}
};

template <typename S, typename P>
struct Pointers {
  P* parameter;
  S* master;
  const S* gradient;
  S* moment1;
  S* moment2;
};

template <typename S, typename P>
TRIREME_INLINE void update(const Constants<S>& k, const Pointers<S, P>& at, int64_t count) {
  P* parameter = at.parameter;
  S* master = at.master;
  const S* gradient = at.gradient;
  S* moment1 = at.moment1;
  S* moment2 = at.moment2;
  TRIREME_NO_CARRIED_DEPENDENCE
  for (int64_t i = 0; i < count; ++i) {
    const S g = k.scale * gradient[i];
    const S m = k.beta1 * moment1[i] + k.rest1 * g;
    const S v = k.beta2 * moment2[i] + k.rest2 * (g * g);
    const S p = master[i];
    const S direction = (m * k.correct1) / (std::sqrt(v * k.correct2) + k.epsilon);
    const S next = p - k.rate * (direction + k.decay * p);
    moment1[i] = m;
    moment2[i] = v;
    master[i] = next;
    parameter[i] = narrow<P>(next);
  }
}

template <typename S, typename P>
TRIREME_AVX2 void updateAvx2(const Constants<S>& k, const Pointers<S, P>& at, int64_t count) {
  update<S, P>(k, at, count);
}
template <typename S, typename P>
void updateBaseline(const Constants<S>& k, const Pointers<S, P>& at, int64_t count) {
  update<S, P>(k, at, count);
}

bool haveAvx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

// Rounded parameters are next read in another step, when no cache holds them any more: they are
// written past the caches, which saves reading what was there.
template <typename P>
void storePastCaches(const P* from, int64_t count, P* to) {
#if defined(__x86_64__) && defined(__GNUC__)
  const auto* words = reinterpret_cast<const __m128i*>(from);
  constexpr int64_t kWord = sizeof(__m128i) / sizeof(P);
  const int64_t whole = reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0 ? count / kWord : 0;
  for (int64_t i = 0; i < whole; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(words + i));
  std::copy(from + whole * kWord, from + count, to + whole * kWord);
#else
  std::copy_n(from, count, to);
#endif
}

constexpr int64_t kGrain = 1 << 15;  // elements
constexpr int64_t kPiece = 64;       // elements

// The processor fetches ahead by itself, but not over the border of a page of 4 KiB: at four
// streams that is a fifth of the time.
template <typename S, typename P>
void fetchAhead(const Pointers<S, P>& at, int64_t i) {
  constexpr int64_t kAhead = 4096 / int64_t{sizeof(S)}, kLine = 64 / int64_t{sizeof(S)};
  for (int64_t line = i + kAhead; line < i + kAhead + kPiece; line += kLine) {
    __builtin_prefetch(at.gradient + line, 0);
    __builtin_prefetch(at.master + line, 1);
    __builtin_prefetch(at.moment1 + line, 1);
    __builtin_prefetch(at.moment2 + line, 1);
  }
}

template <typename S, typename P>
void run(const AdamWStep& step, const AdamWArrays& arrays, ThreadPool& pool) {
  const Constants<S> constants(step, arrays.weightDecay);
  const Pointers<S, P> at{static_cast<P*>(arrays.parameter), static_cast<S*>(arrays.master),
                          static_cast<const S*>(arrays.gradient), static_cast<S*>(arrays.moment1),
                          static_cast<S*>(arrays.moment2)};
  const auto updatePiece = haveAvx2() ? updateAvx2<S, P> : updateBaseline<S, P>;
  // `to` is at.parameter, or where its elements from `first` on are kept.
  const auto updateSome = [&](int64_t begin, int64_t end, P* to, int64_t first) {
    for (int64_t i = begin; i < end; i += kPiece) {
      fetchAhead(at, i);
      const Pointers<S, P> piece{to + (i - first), at.master + i, at.gradient + i, at.moment1 + i,
                                 at.moment2 + i};
      updatePiece(constants, piece, std::min(kPiece, end - i));
    }
  };
  const auto body = [&](int64_t begin, int64_t end) {
    if constexpr (sizeof(P) == sizeof(S)) return updateSome(begin, end, at.parameter, 0);
    constexpr int64_t kBlock = 2048;
    alignas(64) std::array<P, kBlock> rounded;
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      updateSome(i, i + count, rounded.data(), i);
      storePastCaches(rounded.data(), count, at.parameter + i);
    }
#if defined(__x86_64__) && defined(__GNUC__)
    _mm_sfence();  // before another thread is told that they are there
#endif
  };
  parallelFor(pool, arrays.elements, kGrain, std::ref(body));
}

// Of both halves at a time, as one stream gets two thirds of what the memory gives two; in sixteen
// partial sums each, which are independent, so that the loop is vector code, and added up in a
// fixed tree.
template <typename T>
TRIREME_INLINE double addSquares(const T* data, int64_t count) {
  constexpr int64_t kLanes = 16, kLine = 64 / int64_t{sizeof(T)}, kAhead = 16 * kLine;
  std::array<double, 2 * kLanes> sums{};
  const int64_t half = count / (2 * kLanes) * kLanes;
  const auto add = [&](int64_t i, int64_t lane) {
    const double x = data[i];
    sums[static_cast<size_t>(lane)] += x * x;
  };
  for (int64_t i = 0; i < half; i += kLanes) {
    for (int64_t at = i + kAhead; at < i + kAhead + kLanes; at += kLine) {
      __builtin_prefetch(data + at);
      __builtin_prefetch(data + half + at);
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    for (int64_t lane = 0; lane < kLanes; ++lane) add(half + i + lane, kLanes + lane);
  }
  for (int64_t i = 2 * half; i < count; ++i) add(i, i - 2 * half);
  for (size_t width = kLanes; width > 0; width /= 2)
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

template <typename T>
TRIREME_AVX2 double addSquaresAvx2(const T* data, int64_t count) {
  return addSquares(data, count);
}

template <typename T>
double sumOfSquaresOf(const T* data, int64_t count) {
  return haveAvx2() ? addSquaresAvx2(data, count) : addSquares(data, count);
}

}  // namespace

double learningRateAt(const program::Training& t, int64_t step) {
  if (step < t.warmupSteps)
    return t.learningRate * static_cast<double>(step + 1) / static_cast<double>(t.warmupSteps);
  if (t.decaySteps <= 0) return t.learningRate;
  const double progress =
      std::min(1.0, static_cast<double>(step - t.warmupSteps) / static_cast<double>(t.decaySteps));
  const double cosine = 0.5 * (1 + std::cos(3.141592653589793 * progress));
  return t.minLearningRate + (t.learningRate - t.minLearningRate) * cosine;
}

double gradientNorm(const double* squares, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += squares[i];
  return std::sqrt(total);
}

double clipCoefficient(double clipNorm, double norm) {
  if (!(clipNorm > 0)) return 1;
  // Written so that a norm that is not a number stays one, and is seen.
  const double ratio = clipNorm / (norm + 1e-6);
  return ratio >= 1 ? 1 : ratio;
}

void updateLossScaling(const program::Training& training, double norm,
                       program::LossScaling& scaling) {
  if (!std::isfinite(norm)) {
    ++scaling.skippedSteps;
    scaling.scale = std::max(scaling.scale / 2, training.minLossScale);
    scaling.goodSteps = 0;
    return;
  }
  ++scaling.takenSteps;
  if (++scaling.goodSteps < static_cast<double>(training.lossScaleWindow)) return;
  scaling.scale *= 2;
  scaling.goodSteps = 0;
}

double powerOf(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) power *= base;
  return power;
}

Status adamW(const AdamWStep& step, const AdamWArrays& arrays, ThreadPool& pool) {
  const DType state = arrays.stateType, compute = arrays.computeType;
  if (state == DType::kF32 && compute == DType::kF32)
    run<float, float>(step, arrays, pool);
  else if (state == DType::kF32 && compute == DType::kBf16)
    run<float, Bf16>(step, arrays, pool);
  else if (state == DType::kF32 && compute == DType::kF16)
    run<float, F16>(step, arrays, pool);
  else if (state == DType::kF64 && compute == DType::kF64)
    run<double, double>(step, arrays, pool);
  else
    return invalidArgument(fmt::format("no AdamW for state in {} and parameters in {}",
                                       dtypeName(state), dtypeName(compute)));
  return {};
}

double sumOfSquares(DType type, const void* data, int64_t count) {
  return type == DType::kF64 ? sumOfSquaresOf(static_cast<const double*>(data), count)
                             : sumOfSquaresOf(static_cast<const float*>(data), count);
}

}  // namespace trireme::runtime
