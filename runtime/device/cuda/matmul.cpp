// A row-major [m, n] is a column-major n x m. So, with x[t,k], w[o,k], y[t,o] and ' for that view:
//   y = x w^T      y'[o x t] = (w'[k x o])^T x'[k x t]
//   dx = dy w     dx'[k x t] = w'[k x o] dy'[o x t]
//   dw += dy^T x  dw'[k x o] += x'[k x t] (dy'[o x t])^T
#include "runtime/device/cuda/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/kernels/operands.h"

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;

int cudaType(DType type) {
  switch (type) {
    case DType::kF64:
      return kTypeF64;
    case DType::kF32:
      return kTypeF32;
    case DType::kF16:
      return kTypeF16;
    default:
      return kTypeBf16;
  }
}

// The largest power of two, up to 256, that divides the address.
uint32_t alignmentOf(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256u;
  return uint32_t{1} << std::countr_zero(static_cast<uint32_t>(address));
}

}  // namespace

bool isMatmul(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kMatmulGradInput ||
         kind == OpKind::kMatmulGradWeight;
}

Status checkMatmul(const program::SegmentOp& op, const std::vector<program::OperandType>& types) {
  const std::vector<void*> none(types.size(), nullptr);
  const program::KernelContext context;
  const KernelCallArgs call{&op, types.data(), none.data(), &context, nullptr, nullptr};
  TRIREME_RETURN_IF_ERROR(checkOperands(call));
  const DType factor = inputOf(call, 0).dtype(), other = inputOf(call, 1).dtype();
  const DType product = outputOf(call, 0).dtype();
  const bool adds = op.kind == OpKind::kMatmulGradWeight;
  if (other == factor && product == (adds && byteSize(factor) == 2 ? DType::kF32 : factor))
    return {};
  return invalidArgument(fmt::format("{}: no product of {} and {} in {} on CUDA",
                                     program::opName(op.kind), dtypeName(factor), dtypeName(other),
                                     dtypeName(product)));
}

MatmulWorkspace alignedWorkspace(void* data, int64_t bytes) {
  constexpr uintptr_t kAlignment = 256;
  const auto skipped = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(data) % kAlignment);
  if (skipped >= bytes) return {};
  return {static_cast<char*>(data) + skipped, bytes - skipped};
}

Result<std::unique_ptr<CublasLt>> CublasLt::create(const CublasLtApi& api) {
  std::unique_ptr<CublasLt> library(new CublasLt(api));
  if (const int status = api.create(&library->handle_); status != 0)
    return Error(internalError(fmt::format("cuBLASLt cannot be started (status {})", status)));
  return library;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) static_cast<void>(api_.destroy(handle_));
}

Result<std::unique_ptr<Matmul>> Matmul::create(const CublasLt& library,
                                               const program::SegmentOp& op,
                                               const std::vector<program::OperandType>& types) {
  TRIREME_RETURN_IF_ERROR(checkMatmul(op, types));
  std::unique_ptr<Matmul> matmul(new Matmul(library, op));
  TRIREME_RETURN_IF_ERROR(matmul->describe(types));
  return matmul;
}

Matmul::~Matmul() {
  const CublasLtApi& api = library_.api();
  for (void* layout : {layoutA_, layoutB_, layoutC_})
    if (layout != nullptr) static_cast<void>(api.destroyLayout(layout));
  if (desc_ != nullptr) static_cast<void>(api.destroyDesc(desc_));
}

Status Matmul::check(int status, const char* what) const {
  if (status == 0) return {};
  return internalError(
      fmt::format("cuBLASLt, {} of {}: status {}", what, program::opName(op_.kind), status));
}

Status Matmul::describe(const std::vector<program::OperandType>& types) {
  const auto in = [&](size_t i) {
    return Tensor{nullptr, &types[static_cast<size_t>(op_.inputs[i])]};
  };
  const Tensor product{nullptr, &types[static_cast<size_t>(op_.outputs[0])]};
  const DType factor = in(0).dtype();
  accumulates_ = op_.kind == OpKind::kMatmulGradWeight;
  inF64_ = factor == DType::kF64;

  const int64_t t = in(0).tokens();
  const bool forward = op_.kind == OpKind::kMatmul;
  const int64_t o = forward ? product.width() : in(0).width();
  const int64_t k = forward ? in(0).width() : accumulates_ ? in(1).width() : product.width();
  operandA_ = op_.inputs[1];
  operandB_ = op_.inputs[0];
  const int transposeA = forward ? kOpTranspose : kOpNone;
  const int transposeB = accumulates_ ? kOpTranspose : kOpNone;

  const CublasLtApi& api = library_.api();
  const auto layout = [&](void** out, DType type, int64_t rows, int64_t columns) {
    return check(api.createLayout(out, cudaType(type), static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows),
                 "a layout");
  };
  const int compute = inF64_ ? kComputeF64 : op_.attributes.tf32 ? kComputeTf32 : kComputeF32;
  TRIREME_RETURN_IF_ERROR(
      check(api.createDesc(&desc_, compute, inF64_ ? kTypeF64 : kTypeF32), "the description"));
  TRIREME_RETURN_IF_ERROR(
      check(api.setDesc(desc_, kDescTransposeA, &transposeA, sizeof(transposeA)), "transposition"));
  TRIREME_RETURN_IF_ERROR(
      check(api.setDesc(desc_, kDescTransposeB, &transposeB, sizeof(transposeB)), "transposition"));
  // A is w (k x o), or x (k x t) for the weight's gradient; B the activation of t tokens.
  TRIREME_RETURN_IF_ERROR(layout(&layoutA_, factor, k, accumulates_ ? t : o));
  TRIREME_RETURN_IF_ERROR(layout(&layoutB_, factor, forward ? k : o, t));
  return layout(&layoutC_, product.dtype(), forward ? o : k, accumulates_ ? o : t);
}

Status Matmul::run(void* const* operands, const MatmulWorkspace& workspace, StreamHandle stream) {
  const void *a = operands[operandA_], *b = operands[operandB_];
  void* c = operands[op_.outputs[0]];
  TRIREME_ASSIGN_OR_RETURN(const Algorithm* algorithm, algorithmFor(a, b, c, workspace));
  const double one64 = 1, beta64 = accumulates_ ? 1 : 0;
  const float one32 = 1, beta32 = accumulates_ ? 1 : 0;
  const void* alpha = inF64_ ? static_cast<const void*>(&one64) : &one32;
  const void* beta = inF64_ ? static_cast<const void*>(&beta64) : &beta32;
  return check(library_.api().matmul(library_.handle(), desc_, alpha, a, layoutA_, b, layoutB_,
                                     beta, c, layoutC_, c, layoutC_, algorithm->found.algorithm,
                                     workspace.data, algorithm->found.workspaceBytes, stream),
               "the product");
}

Result<const Matmul::Algorithm*> Matmul::algorithmFor(const void* a, const void* b, const void* c,
                                                      const MatmulWorkspace& workspace) {
  Algorithm wanted;
  wanted.alignmentA = alignmentOf(a);
  wanted.alignmentB = alignmentOf(b);
  wanted.alignmentC = alignmentOf(c);
  for (const Algorithm& known : algorithms_)
    if (known.alignmentA == wanted.alignmentA && known.alignmentB == wanted.alignmentB &&
        known.alignmentC == wanted.alignmentC)
      return &known;
  TRIREME_RETURN_IF_ERROR(search(wanted, workspace.bytes));
  return &algorithms_.emplace_back(wanted);
}

Status Matmul::search(Algorithm& algorithm, int64_t workspaceBytes) const {
  const CublasLtApi& api = library_.api();
  void* preference = nullptr;
  TRIREME_RETURN_IF_ERROR(check(api.createPreference(&preference), "a preference"));
  const auto bytes = static_cast<uint64_t>(workspaceBytes);
  const auto set = [&](int attribute, const void* value, size_t size) {
    return api.setPreference(preference, attribute, value, size);
  };
  int status = set(kPreferenceWorkspaceBytes, &bytes, sizeof(bytes));
  const auto align = [&](int attribute, const uint32_t& alignment) {
    if (status == 0) status = set(attribute, &alignment, sizeof(alignment));
  };
  align(kPreferenceAlignmentA, algorithm.alignmentA);
  align(kPreferenceAlignmentB, algorithm.alignmentB);
  align(kPreferenceAlignmentC, algorithm.alignmentC);
  align(kPreferenceAlignmentD, algorithm.alignmentC);
  int found = 0;
  if (status == 0)
    status = api.heuristic(library_.handle(), desc_, layoutA_, layoutB_, layoutC_, layoutC_,
                           preference, 1, &algorithm.found, &found);
  static_cast<void>(api.destroyPreference(preference));
  TRIREME_RETURN_IF_ERROR(check(status, "the choice of an algorithm"));
  if (found == 0 || algorithm.found.state != 0)
    return internalError(
        fmt::format("cuBLASLt has no algorithm for a {} of this shape", program::opName(op_.kind)));
  return {};
}

}  // namespace trireme::runtime::cuda
