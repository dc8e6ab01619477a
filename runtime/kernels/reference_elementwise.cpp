// Reference of the ops that a fusion may put into one loop. Each reads an index before it writes
// it, so an output may be one of the inputs.
#include <cmath>

#include "runtime/kernels/reference.h"

namespace trireme::runtime::reference {
namespace {

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

double geluOf(double u) {
  return 0.5 * u * (1 + std::tanh(kGeluScale * (u + kGeluCubic * u * u * u)));
}

double geluDerivative(double u) {
  const double t = std::tanh(kGeluScale * (u + kGeluCubic * u * u * u));
  const double inner = kGeluScale * (1 + 3 * kGeluCubic * u * u);
  return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * inner;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void dropout(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), y = outputOf(args, 0);
  const double p = args.op->attributes.probability;
  const uint32_t threshold = dropoutThreshold(p);
  const RngKey key = rngKeyOf(args);
  const int64_t first = firstPosition(args, x.dim(0)), batch = x.dim(1), width = x.width();
  for (int64_t token = 0; token < x.tokens(); ++token)
    for (int64_t c = 0; c < width; ++c) {
      const uint64_t sample = args.context->firstSample + static_cast<uint64_t>(token % batch);
      const uint64_t element = static_cast<uint64_t>((first + token / batch) * width + c);
      const bool kept = randomWord(key, sample, element) >= threshold;
      const int64_t i = token * width + c;
      y.set(i, kept ? x.at(i) / (1 - p) : 0.0);
    }
}

void add(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), y = inputOf(args, 1), sum = outputOf(args, 0);
  for (int64_t i = 0; i < x.elements(); ++i) sum.set(i, x.at(i) + y.at(i));
}

void biasAdd(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), bias = inputOf(args, 1), y = outputOf(args, 0);
  const int64_t width = bias.elements();
  for (int64_t i = 0; i < x.elements(); ++i) y.set(i, x.at(i) + bias.at(i % width));
}

void biasGrad(const KernelCallArgs& args) {
  const Tensor dy = inputOf(args, 0), dBias = outputOf(args, 0);
  const int64_t width = dBias.elements();
  for (int64_t c = 0; c < width; ++c)
    dBias.add(c,
              sumOverTokens(dy.tokens(), [&](int64_t token) { return dy.at(token * width + c); }));
}

void gelu(const KernelCallArgs& args) {
  const Tensor u = inputOf(args, 0), z = outputOf(args, 0);
  for (int64_t i = 0; i < u.elements(); ++i) z.set(i, geluOf(u.at(i)));
}

void geluGrad(const KernelCallArgs& args) {
  const Tensor u = inputOf(args, 0), dz = inputOf(args, 1), du = outputOf(args, 0);
  for (int64_t i = 0; i < u.elements(); ++i) du.set(i, dz.at(i) * geluDerivative(u.at(i)));
}

void swiGlu(const KernelCallArgs& args) {
  const Tensor u = inputOf(args, 0), z = outputOf(args, 0);
  const int64_t width = u.dim(3);
  for (int64_t token = 0; token < u.tokens(); ++token)
    for (int64_t c = 0; c < width; ++c) {
      const double gate = u.at(2 * token * width + c), up = u.at((2 * token + 1) * width + c);
      z.set(token * width + c, gate * sigmoid(gate) * up);
    }
}

void swiGluGrad(const KernelCallArgs& args) {
  const Tensor u = inputOf(args, 0), dz = inputOf(args, 1), du = outputOf(args, 0);
  const int64_t width = u.dim(3);
  for (int64_t token = 0; token < u.tokens(); ++token)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t gateAt = 2 * token * width + c, upAt = gateAt + width;
      const double gate = u.at(gateAt), up = u.at(upAt), d = dz.at(token * width + c);
      const double s = sigmoid(gate);
      du.set(gateAt, d * up * s * (1 + gate * (1 - s)));
      du.set(upAt, d * gate * s);
    }
}

}  // namespace trireme::runtime::reference
