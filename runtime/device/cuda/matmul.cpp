// A row-major [m, n] is a column-major n x m. So, with x[t,k], w[o,k], y[t,o] and ' for that view:
//   y = x w^T      y'[o x t] = (w'[k x o])^T x'[k x t]
//   dx = dy w     dx'[k x t] = w'[k x o] dy'[o x t]
//   dw += dy^T x  dw'[k x o] += x'[k x t] (dy'[o x t])^T
#include "runtime/device/cuda/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>

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
uint32_t divisorOf(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256u;
  return uint32_t{1} << std::countr_zero(static_cast<uint32_t>(address));
}

int epilogueOf(const MatmulEpilogue& epilogue) {
  if (epilogue.kind == EpilogueKind::kBias) return kEpilogueBias;
  if (epilogue.kind == EpilogueKind::kGeluGrad) return kEpilogueGeluGrad;
  return epilogue.aux >= 0 ? kEpilogueGeluAuxBias : kEpilogueGeluBias;
}

const char* epilogueName(const MatmulEpilogue& epilogue) {
  if (epilogue.kind == EpilogueKind::kBias) return ", bias";
  if (epilogue.kind == EpilogueKind::kGeluGrad) return ", gelu_grad";
  return epilogue.aux >= 0 ? ", bias, gelu that keeps its input" : ", bias, gelu";
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

Workspace alignedWorkspace(void* data, int64_t bytes) {
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
                                               const std::vector<program::OperandType>& types,
                                               const MatmulEpilogue& epilogue) {
  TRIREME_RETURN_IF_ERROR(checkMatmul(op, types));
  std::unique_ptr<Matmul> matmul(new Matmul(library, op, epilogue));
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
  shape_ = fmt::format("{} of {} tokens, {} x {}, {} in {} to {}", program::opName(op_.kind), t, o,
                       k, op_.attributes.tf32 ? "tf32" : dtypeName(factor), inF64_ ? "f64" : "f32",
                       dtypeName(product.dtype()));
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
  TRIREME_RETURN_IF_ERROR(
      layout(&layoutC_, product.dtype(), forward ? o : k, accumulates_ ? o : t));
  return describeEpilogue(forward ? o : k);
}

// All of its operands have the result's type, which is what cuBLASLt takes unless it is told.
Status Matmul::describeEpilogue(int64_t columns) {
  if (epilogue_.kind == EpilogueKind::kNone) return {};
  if (inF64_) return invalidArgument("cuBLASLt has no epilogues in f64");
  shape_ += epilogueName(epilogue_);
  const CublasLtApi& api = library_.api();
  const int epilogue = epilogueOf(epilogue_);
  TRIREME_RETURN_IF_ERROR(
      check(api.setDesc(desc_, kDescEpilogue, &epilogue, sizeof(epilogue)), "the epilogue"));
  if (epilogue_.aux < 0) return {};
  return check(api.setDesc(desc_, kDescAuxLeading, &columns, sizeof(columns)), "the epilogue");
}

int Matmul::point(const void* bias, const void* aux) const {
  const auto set = [&](int32_t operand, int attribute, const void* address) {
    return operand < 0 ? 0 : library_.api().setDesc(desc_, attribute, &address, sizeof(address));
  };
  const int status = set(epilogue_.bias, kDescBiasPointer, bias);
  return status != 0 ? status : set(epilogue_.aux, kDescAuxPointer, aux);
}

int Matmul::pointAt(const MatmulAlignment& alignment) const {
  return point(reinterpret_cast<const void*>(uintptr_t{alignment.bias}),
               reinterpret_cast<const void*>(uintptr_t{alignment.aux}));
}

int Matmul::launch(const MatmulAlgorithm& algorithm, void* const* operands,
                   const Workspace& workspace, StreamHandle stream) const {
  void* c = operands[output()];
  const auto at = [&](int32_t operand) { return operand < 0 ? nullptr : operands[operand]; };
  if (const int status = point(at(epilogue_.bias), at(epilogue_.aux)); status != 0) return status;
  const double one64 = 1, beta64 = accumulates_ ? 1 : 0;
  const float one32 = 1, beta32 = accumulates_ ? 1 : 0;
  const void* alpha = inF64_ ? static_cast<const void*>(&one64) : &one32;
  const void* beta = inF64_ ? static_cast<const void*>(&beta64) : &beta32;
  return library_.api().matmul(library_.handle(), desc_, alpha, operands[operandA_], layoutA_,
                               operands[operandB_], layoutB_, beta, c, layoutC_, c, layoutC_,
                               algorithm.words.data(), workspace.data,
                               static_cast<size_t>(algorithm.workspaceBytes), stream);
}

Status Matmul::run(void* const* operands, const Workspace& workspace, StreamHandle stream) {
  TRIREME_ASSIGN_OR_RETURN(const MatmulAlgorithm* algorithm,
                           algorithmFor(operands, workspace.bytes));
  return check(launch(*algorithm, operands, workspace, stream), "the product");
}

Result<bool> Matmul::tryRun(const MatmulAlgorithm& algorithm, void* const* operands,
                            const Workspace& workspace, StreamHandle stream) const {
  const int status = launch(algorithm, operands, workspace, stream);
  if (status == kStatusNotSupported) return false;
  TRIREME_RETURN_IF_ERROR(check(status, "the product"));
  return true;
}

std::string Matmul::key(const MatmulAlignment& alignment, int64_t workspaceBytes) const {
  std::string text =
      fmt::format("{}, aligned to {}, {} and {}", shape_, alignment.a, alignment.b, alignment.c);
  if (epilogue_.bias >= 0) text += fmt::format(", bias to {}", alignment.bias);
  if (epilogue_.aux >= 0) text += fmt::format(", gelu's input to {}", alignment.aux);
  return text + fmt::format(", workspace {}", workspaceBytes);
}

MatmulAlignment Matmul::alignmentOf(void* const* operands) const {
  const auto of = [&](int32_t operand) {
    return divisorOf(operand < 0 ? nullptr : operands[operand]);
  };
  return {of(operandA_), of(operandB_), of(output()), of(epilogue_.bias), of(epilogue_.aux)};
}

MatmulAlignment leastOf(const MatmulAlignment& x, const MatmulAlignment& y) {
  return {std::min(x.a, y.a), std::min(x.b, y.b), std::min(x.c, y.c), std::min(x.bias, y.bias),
          std::min(x.aux, y.aux)};
}

void Matmul::use(const MatmulAlignment& alignment, const MatmulAlgorithm& algorithm) {
  choices_.push_back({alignment, algorithm});
}

Result<const MatmulAlgorithm*> Matmul::algorithmFor(void* const* operands, int64_t workspaceBytes) {
  const MatmulAlignment alignment = alignmentOf(operands);
  for (const Choice& choice : choices_)
    if (leastOf(choice.alignment, alignment) == choice.alignment) return &choice.algorithm;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<MatmulAlgorithm> found,
                           candidates(alignment, workspaceBytes, 1));
  use(alignment, found.front());
  return &choices_.back().algorithm;
}

Status Matmul::accepts(const MatmulAlignment& alignment, const MatmulAlgorithm& algorithm,
                       int64_t workspaceBytes) const {
  TRIREME_RETURN_IF_ERROR(check(pointAt(alignment), "the epilogue"));
  MatmulHeuristic result{};
  const int status =
      library_.api().checkAlgorithm(library_.handle(), desc_, layoutA_, layoutB_, layoutC_,
                                    layoutC_, algorithm.words.data(), &result);
  if (status != 0 || result.state != 0)
    return invalidArgument(fmt::format("cuBLASLt refuses the algorithm (status {})",
                                       status != 0 ? status : result.state));
  const auto needed = static_cast<int64_t>(result.workspaceBytes);
  if (needed <= algorithm.workspaceBytes && algorithm.workspaceBytes <= workspaceBytes) return {};
  return invalidArgument(
      fmt::format("the algorithm needs a workspace of {} bytes, of which there are {}",
                  std::max(needed, algorithm.workspaceBytes), workspaceBytes));
}

Result<std::vector<MatmulAlgorithm>> Matmul::candidates(const MatmulAlignment& alignment,
                                                        int64_t workspaceBytes, int most) const {
  const CublasLtApi& api = library_.api();
  void* preference = nullptr;
  TRIREME_RETURN_IF_ERROR(check(pointAt(alignment), "the epilogue"));
  TRIREME_RETURN_IF_ERROR(check(api.createPreference(&preference), "a preference"));
  int status = 0;
  const auto set = [&](int attribute, const auto& value) {
    if (status == 0) status = api.setPreference(preference, attribute, &value, sizeof(value));
  };
  set(kPreferenceWorkspaceBytes, static_cast<uint64_t>(workspaceBytes));
  set(kPreferenceReductionSchemes, kReduceInComputeType);
  set(kPreferenceAlignmentA, alignment.a);
  set(kPreferenceAlignmentB, alignment.b);
  set(kPreferenceAlignmentC, alignment.c);
  set(kPreferenceAlignmentD, alignment.c);
  std::vector<MatmulHeuristic> results(static_cast<size_t>(most));
  int found = 0;
  if (status == 0)
    status = api.heuristic(library_.handle(), desc_, layoutA_, layoutB_, layoutC_, layoutC_,
                           preference, most, results.data(), &found);
  static_cast<void>(api.destroyPreference(preference));
  TRIREME_RETURN_IF_ERROR(check(status, "the choice of an algorithm"));
  std::vector<MatmulAlgorithm> usable;
  for (const MatmulHeuristic& result : std::span(results).first(static_cast<size_t>(found)))
    if (result.state == 0)
      usable.push_back(
          {std::to_array(result.algorithm), static_cast<int64_t>(result.workspaceBytes)});
  if (!usable.empty()) return usable;
  return Error(internalError(
      fmt::format("cuBLASLt has no algorithm for a {}", key(alignment, workspaceBytes))));
}

}  // namespace trireme::runtime::cuda
