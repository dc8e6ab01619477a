// Gradient norm, clipping and AdamW (runtime/executor/optimizer.h); a whole bucket per launch. The
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

// A norm that is not a number stays one, and is seen.
TRIREME_DEVICE void adamwScale(const AdamWArgs& a) {
  forEachRow(1, [&](int64_t) {
    double total = 0;
    for (int64_t first = 0; first < a.numSquares; first += 32) {  // in order; a load for 32 of them
      PerLane<double> squares;
      squares.fill([&](int lane) { return first + lane < a.numSquares ? a.squares[first + lane] : 0; });
      for (int lane = 0; lane < 32; ++lane) total += squares.at(lane);
    }
    onOneLane([&] {
      const double ratio = a.clipNorm / (sqrtOf(total) + 1e-6);
      *a.gradientScale = a.clipNorm > 0 && !(ratio >= 1) ? ratio : 1;
    });
  });
}

template <typename S, typename P>
TRIREME_DEVICE void adamw(const AdamWArgs& a) {
  P* parameter = static_cast<P*>(a.parameter);
  S *master = static_cast<S*>(a.master), *moment1 = static_cast<S*>(a.moment1);
  S* moment2 = static_cast<S*>(a.moment2);
  const S* gradient = static_cast<const S*>(a.gradient);
  const S scale = static_cast<S>(*a.gradientScale), rate = static_cast<S>(a.learningRate);
  const S beta1 = static_cast<S>(a.beta1), beta2 = static_cast<S>(a.beta2);
  const S rest1 = static_cast<S>(1 - a.beta1), rest2 = static_cast<S>(1 - a.beta2);
  const S epsilon = static_cast<S>(a.epsilon), decay = static_cast<S>(a.weightDecay);
  const S correct1 = static_cast<S>(a.correct1), correct2 = static_cast<S>(a.correct2);
  forEach(a.elements, [=](int64_t i) {
    const S g = scale * gradient[i];
    const S m = beta1 * moment1[i] + rest1 * g;
    const S v = beta2 * moment2[i] + rest2 * (g * g);
    const S p = master[i];
    const S direction = (m * correct1) / (sqrtOf(v * correct2) + epsilon);
    const S next = p - rate * (direction + decay * p);
    moment1[i] = m;
    moment2[i] = v;
    master[i] = next;
    store(parameter[i], next);
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

}  // namespace trireme::runtime::cuda
