// Reference of the norms. Per token, over the h columns:
//   layer norm  xhat = (x - mean) rstd    rstd = 1 / sqrt(mean((x - mean)^2) + epsilon)
//   RMS norm    xhat = x rstd             rstd = 1 / sqrt(mean(x^2) + epsilon)
//   y = xhat gamma [+ beta]
// Backward, with g = dy gamma:
//   layer norm  dx = rstd (g - mean(g) - xhat mean(g xhat))
//   RMS norm    dx = rstd (g - xhat mean(g xhat))
#include <cmath>
#include <vector>

#include "runtime/kernels/reference.h"

namespace trireme::runtime::reference {
namespace {

std::vector<double> rowOf(const Tensor& t, int64_t row, int64_t width) {
  std::vector<double> values(static_cast<size_t>(width));
  for (int64_t c = 0; c < width; ++c) values[c] = t.at(row * width + c);
  return values;
}

double meanOf(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double meanSquare(const std::vector<double>& values, double center) {
  double sum = 0;
  for (double v : values) sum += (v - center) * (v - center);
  return sum / static_cast<double>(values.size());
}

struct NormGrad {
  Tensor x, gamma, rstds, dy, dx, dGamma;
  Tensor means;  // without data for an RMS norm, which is not centered

  bool centered() const { return means.data != nullptr; }
  double mean(int64_t row) const { return centered() ? means.at(row) : 0; }

  // Before tokens(), as dx may lie over dy.
  void columns() const {
    const int64_t width = gamma.elements();
    for (int64_t c = 0; c < width; ++c)
      dGamma.add(c, sumOverTokens(x.tokens(), [&](int64_t row) {
                   const int64_t i = row * width + c;
                   return dy.at(i) * ((x.at(i) - mean(row)) * rstds.at(row));
                 }));
  }

  void tokens() const {
    for (int64_t row = 0; row < x.tokens(); ++row) token(row, mean(row), rstds.at(row));
  }

  // dx of one token from its statistics.
  void token(int64_t row, double mean, double rstd) const {
    const int64_t width = gamma.elements();
    const std::vector<double> xs = rowOf(x, row, width), dys = rowOf(dy, row, width);
    double sumG = 0, sumGX = 0;
    for (int64_t c = 0; c < width; ++c) {
      const double xhat = (xs[c] - mean) * rstd, g = dys[c] * gamma.at(c);
      sumG += g;
      sumGX += g * xhat;
    }
    const double meanG = centered() ? sumG / static_cast<double>(width) : 0;
    const double meanGX = sumGX / static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c) {
      const double xhat = (xs[c] - mean) * rstd, g = dys[c] * gamma.at(c);
      dx.set(row * width + c, rstd * (g - meanG - xhat * meanGX));
    }
  }
};

}  // namespace

void layerNorm(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), gamma = inputOf(args, 1), beta = inputOf(args, 2);
  const Tensor y = outputOf(args, 0), means = outputOf(args, 1), rstds = outputOf(args, 2);
  const int64_t width = x.width();
  for (int64_t row = 0; row < x.tokens(); ++row) {
    const std::vector<double> xs = rowOf(x, row, width);
    const double mean = meanOf(xs);
    const double rstd = 1 / std::sqrt(meanSquare(xs, mean) + args.op->attributes.epsilon);
    for (int64_t c = 0; c < width; ++c)
      y.set(row * width + c, (xs[c] - mean) * rstd * gamma.at(c) + beta.at(c));
    means.set(row, mean);
    rstds.set(row, rstd);
  }
}

void rmsNorm(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), gamma = inputOf(args, 1);
  const Tensor y = outputOf(args, 0), rstds = outputOf(args, 1);
  const int64_t width = x.width();
  for (int64_t row = 0; row < x.tokens(); ++row) {
    const std::vector<double> xs = rowOf(x, row, width);
    const double rstd = 1 / std::sqrt(meanSquare(xs, 0) + args.op->attributes.epsilon);
    for (int64_t c = 0; c < width; ++c) y.set(row * width + c, xs[c] * rstd * gamma.at(c));
    rstds.set(row, rstd);
  }
}

void layerNormGrad(const KernelCallArgs& args) {
  const Tensor dy = inputOf(args, 4), dBeta = outputOf(args, 2);
  const NormGrad grad{inputOf(args, 0),  inputOf(args, 1),  inputOf(args, 3), dy,
                      outputOf(args, 0), outputOf(args, 1), inputOf(args, 2)};
  const int64_t width = grad.gamma.elements();
  for (int64_t c = 0; c < width; ++c)
    dBeta.add(c, sumOverTokens(dy.tokens(), [&](int64_t row) { return dy.at(row * width + c); }));
  grad.columns();
  grad.tokens();
}

void rmsNormGrad(const KernelCallArgs& args) {
  const NormGrad grad{inputOf(args, 0),
                      inputOf(args, 1),
                      inputOf(args, 2),
                      inputOf(args, 3),
                      outputOf(args, 0),
                      outputOf(args, 1),
                      {}};
  grad.columns();
  grad.tokens();
}

}  // namespace trireme::runtime::reference
