// Matrix products of segments on cuBLASLt. Factors of 16 bits are summed in f32; f32 is f32
// throughout, but for factors in TF32 where the op allows it. Gradients of weights add to f32 or
// f64.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/program/op.h"
#include "runtime/device/cuda/cublaslt_api.h"
#include "runtime/device/cuda/driver_api.h"

namespace trireme::runtime::cuda {

bool isMatmul(program::OpKind kind);
// kInvalidArgument: shapes or types that the op does not take.
Status checkMatmul(const program::SegmentOp& op, const std::vector<program::OperandType>& types);

// A handle of cuBLASLt.
class CublasLt {
 public:
  // kInternal: cuBLASLt cannot be started.
  static Result<std::unique_ptr<CublasLt>> create(const CublasLtApi& api);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  const CublasLtApi& api() const { return api_; }
  void* handle() const { return handle_; }

 private:
  explicit CublasLt(const CublasLtApi& api) : api_(api) {}
  const CublasLtApi& api_;
  void* handle_ = nullptr;
};

// Part of the arena that a product may use.
struct MatmulWorkspace {
  void* data = nullptr;  // at a multiple of 256, as cuBLASLt wants it
  int64_t bytes = 0;
};
// What is left of `bytes` at `data` from the first such address on.
MatmulWorkspace alignedWorkspace(void* data, int64_t bytes);

class Matmul {
 public:
  // `library` outlives the result. kInvalidArgument: shapes or types that the op does not take.
  static Result<std::unique_ptr<Matmul>> create(const CublasLt& library,
                                                const program::SegmentOp& op,
                                                const std::vector<program::OperandType>& types);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // The first call with operands of some alignment asks cuBLASLt for its best algorithm; later ones
  // use the same. kInternal: cuBLASLt has none, or refuses.
  Status run(void* const* operands, const MatmulWorkspace& workspace, StreamHandle stream);

 private:
  struct Algorithm {
    uint32_t alignmentA = 0, alignmentB = 0, alignmentC = 0;  // bytes
    MatmulHeuristic found{};
  };
  Matmul(const CublasLt& library, const program::SegmentOp& op) : library_(library), op_(op) {}
  Status describe(const std::vector<program::OperandType>& types);
  Status check(int status, const char* what) const;
  Result<const Algorithm*> algorithmFor(const void* a, const void* b, const void* c,
                                        const MatmulWorkspace& workspace);
  Status search(Algorithm& algorithm, int64_t workspaceBytes) const;

  const CublasLt& library_;
  program::SegmentOp op_;
  int32_t operandA_ = -1, operandB_ = -1;  // as cuBLAS counts: column-major
  bool inF64_ = false;
  bool accumulates_ = false;
  void* desc_ = nullptr;
  void* layoutA_ = nullptr;
  void* layoutB_ = nullptr;
  void* layoutC_ = nullptr;
  std::vector<Algorithm> algorithms_;
};

}  // namespace trireme::runtime::cuda
