// Gradient norm, clipping and AdamW (runtime/executor/optimizer.h); all buckets in one launch. The
// same operations in the same order as on the host, and nothing is contracted: equal bit by bit
// but for the order in which squares are added up.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

template <typename S>
TRIREME_DEVICE void squaresPieces(const SquaresArgs& a) {
  forEachRow(a.numPieces, [&](int64_t i) {
    const SquaresPiece piece = a.pieces[i];
    const S* data = static_cast<const S*>(piece.data);
    const double sum = rowSumOf(
        piece.elements, [=](int64_t e) { return data[e]; }, [](double x) { return x * x; });
    onOneLane([&] { a.partial[i] = sum; });
  });
}

TRIREME_DEVICE void squaresRows(const SquaresArgs& a) {
  forEachRow(a.numRows, [&](int64_t i) {
    const SquaresRow row = a.rows[i];
    const double* partial = a.partial + row.firstPiece;
    const double sum = rowSum(row.numPieces, [=](int64_t p) { return partial[p]; });
    onOneLane([&] { a.squares[row.logicalIndex] = sum; });
  });
}

// In index order, by a warp.
TRIREME_DEVICE double normOf(const double* squares, int64_t count) {
  double total = 0;
  for (int64_t first = 0; first < count; first += 32) {  // a load for 32 of them
    PerLane<double> some;
    some.fill([&](int lane) { return first + lane < count ? squares[first + lane] : 0; });
    for (int lane = 0; lane < 32; ++lane) total += some.at(lane);
  }
  return sqrtOf(total);
}

TRIREME_DEVICE bool isFinite(double x) { return x - x == 0; }

// As powerOf() in runtime/executor/optimizer.h.
TRIREME_DEVICE double powerOf(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) power *= base;
  return power;
}

TRIREME_DEVICE void adamwScale(const AdamWArgs& a) {
  forEachRow(1, [&](int64_t) {
    const double scaledNorm = normOf(a.squares, a.numSquares);
    onOneLane([&] {
      const bool isScaled = a.lossScaling != nullptr;
      const double scale = isScaled ? a.lossScaling[kLossScale] : 1;
      const double ratio = a.clipNorm / (scaledNorm / scale + 1e-6);
      const double clipped = a.clipNorm > 0 && !(ratio >= 1) ? ratio : 1;
      AdamWFactors factors = {clipped / scale, a.correct1, a.correct2, !isFinite(scaledNorm)};
      if (isScaled) {
        const int64_t number = static_cast<int64_t>(a.lossScaling[kTakenSteps]) + 1;
        factors.correct1 = 1 / (1 - powerOf(a.beta1, number));
        factors.correct2 = 1 / (1 - powerOf(a.beta2, number));
      }
      *a.factors = factors;
    });
  });
}

TRIREME_DEVICE void updateLossScale(const LossScaleArgs& a) {
  forEachRow(1, [&](int64_t) {
    const double norm = normOf(a.squares, a.numSquares);
    onOneLane([&] {
      double* scaling = a.lossScaling;
      if (!isFinite(norm)) {
        const double half = scaling[kLossScale] / 2;
        scaling[kLossScale] = half < a.minimum ? a.minimum : half;
        scaling[kGoodSteps] = 0;
        scaling[kSkippedSteps] += 1;
        return;
      }
      scaling[kTakenSteps] += 1;
      scaling[kGoodSteps] += 1;
      if (scaling[kGoodSteps] < a.window) return;
      scaling[kLossScale] *= 2;
      scaling[kGoodSteps] = 0;
    });
  });
}

// The one that holds the piece.
TRIREME_DEVICE const AdamWBucket& bucketOf(const AdamWArgs& a, int64_t piece) {
  int64_t i = 0;
  while (i + 1 < a.numBuckets && a.buckets[i + 1].firstPiece <= piece) ++i;
  return a.buckets[i];
}

template <typename S>
struct AdamWState {
  S gradient, moment1, moment2, master;
};

template <typename S, typename P>
TRIREME_DEVICE void adamw(const AdamWArgs& a) {
  const AdamWFactors factors = *a.factors;
  const S scale = static_cast<S>(factors.gradientScale), rate = static_cast<S>(a.learningRate);
  const S beta1 = static_cast<S>(a.beta1), beta2 = static_cast<S>(a.beta2);
  const S rest1 = static_cast<S>(1 - a.beta1), rest2 = static_cast<S>(1 - a.beta2);
  const S epsilon = static_cast<S>(a.epsilon);
  const S correct1 = static_cast<S>(factors.correct1);
  const S correct2 = static_cast<S>(factors.correct2);
  forEachRow(factors.isSkipped ? 0 : a.numPieces, [&](int64_t piece) {
    const AdamWBucket bucket = bucketOf(a, piece);
    const int64_t first = (piece - bucket.firstPiece) * kAdamWPiece;
    P* parameter = static_cast<P*>(bucket.parameter) + first;
    const S* gradient = static_cast<const S*>(bucket.gradient) + first;
    S* moment1 = static_cast<S*>(bucket.moment1) + first;
    S* moment2 = static_cast<S*>(bucket.moment2) + first;
    S* master = static_cast<S*>(bucket.master) + first;
    const S decay = static_cast<S>(bucket.weightDecay);
    forRowOf(
        smaller(kAdamWPiece, bucket.elements - first),
        [&](int64_t i) {
          return AdamWState<S>{gradient[i], moment1[i], moment2[i], master[i]};
        },
        [&](int64_t i, const AdamWState<S>& x) {
          const S g = scale * x.gradient;
          const S m = beta1 * x.moment1 + rest1 * g;
          const S v = beta2 * x.moment2 + rest2 * (g * g);
          const S direction = (m * correct1) / (sqrtOf(v * correct2) + epsilon);
          const S next = x.master - rate * (direction + decay * x.master);
          moment1[i] = m;
          moment2[i] = v;
          master[i] = next;
          store(parameter[i], next);
        });
  });
}

}  // namespace

TRIREME_KERNEL(squares_pieces_f64, SquaresArgs, squaresPieces<double>)
TRIREME_KERNEL(squares_pieces_f32, SquaresArgs, squaresPieces<float>)
TRIREME_KERNEL(squares_rows, SquaresArgs, squaresRows)
TRIREME_KERNEL(adamw_scale, AdamWArgs, adamwScale)
TRIREME_KERNEL(adamw_f64, AdamWArgs, (adamw<double, double>))
TRIREME_KERNEL(adamw_f32, AdamWArgs, (adamw<float, float>))
TRIREME_KERNEL(adamw_bf16, AdamWArgs, (adamw<float, Bf16>))
TRIREME_KERNEL(adamw_f16, AdamWArgs, (adamw<float, F16>))
TRIREME_KERNEL(update_loss_scale, LossScaleArgs, updateLossScale)

}  // namespace trireme::runtime::cuda
