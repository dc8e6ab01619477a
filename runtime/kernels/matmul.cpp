#include "runtime/kernels/matmul.h"

#include "runtime/kernels/gemm.h"

namespace trireme::runtime {
namespace {

using program::OpKind;

template <typename T, typename C>
GemmCall<T, C> callOf(const KernelCallArgs& args) {
  const Tensor first = inputOf(args, 0), second = inputOf(args, 1), product = outputOf(args, 0);
  const int64_t tokens = first.tokens();
  C* c = product.as<C>();
  switch (args.op->kind) {
    case OpKind::kMatmul: {  // y = x w^T
      const int64_t in = first.width(), out = product.width();
      return {tokens,
              out,
              in,
              rowMajor<T>(first.as<T>(), in),
              rowMajor<T>(second.as<T>(), in).transposed(),
              c,
              out,
              false};
    }
    case OpKind::kMatmulGradInput: {  // dx = dy w
      const int64_t in = product.width(), out = first.width();
      return {tokens, in, out,  rowMajor<T>(first.as<T>(), out), rowMajor<T>(second.as<T>(), in),
              c,      in, false};
    }
    default: {  // dw += dy^T x
      const int64_t in = second.width(), out = first.width();
      return {out,
              in,
              tokens,
              rowMajor<T>(first.as<T>(), out).transposed(),
              rowMajor<T>(second.as<T>(), in),
              c,
              in,
              !args.overwrite};
    }
  }
}

template <typename T, typename C>
void multiply(const KernelCallArgs& args) {
  parallelGemm(callOf<T, C>(args), *args.pool, args.workspace);
}

template <typename T>
void multiply16(const KernelCallArgs& args) {
  if (args.op->kind == OpKind::kMatmulGradWeight) return multiply<T, float>(args);
  multiply<T, T>(args);
}

}  // namespace

bool isFastMatmul(const KernelCallArgs& args) {
  const DType factor = inputOf(args, 0).dtype(), product = outputOf(args, 0).dtype();
  if (inputOf(args, 1).dtype() != factor) return false;
  if (byteSize(factor) != 2) return product == factor;
  return product == (args.op->kind == OpKind::kMatmulGradWeight ? DType::kF32 : factor);
}

void fastMatmul(const KernelCallArgs& args) {
  const DType factor = inputOf(args, 0).dtype();
  if (factor == DType::kF64) return multiply<double, double>(args);
  if (factor == DType::kF32) return multiply<float, float>(args);
  if (factor == DType::kF16) return multiply16<F16>(args);
  multiply16<Bf16>(args);
}

}  // namespace trireme::runtime
