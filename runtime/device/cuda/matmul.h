// Matrix products of segments on cuBLASLt. Factors of 16 bits are summed in f32; f32 is f32
// throughout, but for factors in TF32 where the op allows it. Gradients of weights add to f32 or
// f64.
//
// An algorithm may cut the sum into parts only if it adds these in the type that it sums in, in a
// step of its own: then results repeat bit by bit, and 16 bits are rounded once. (Left out are "in
// place", where parts meet in the result, and parts kept in the result's type.)
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
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
  // Its end would wait for a GPU that does not answer: it stays open.
  void abandon() { handle_ = nullptr; }

 private:
  explicit CublasLt(const CublasLtApi& api) : api_(api) {}
  const CublasLtApi& api_;
  void* handle_ = nullptr;
};

// Part of the arena that an op may use while it runs.
struct Workspace {
  void* data = nullptr;  // at a multiple of 256, as cuBLASLt wants it
  int64_t bytes = 0;
};
// What is left of `bytes` at `data` from the first such address on.
Workspace alignedWorkspace(void* data, int64_t bytes);

// Of cuBLASLt, opaque, for one product on one kind of GPU.
struct MatmulAlgorithm {
  std::array<uint64_t, 8> words{};
  int64_t workspaceBytes = 0;
  bool operator==(const MatmulAlgorithm&) const = default;
};

// What cuBLASLt does with a product before it writes it; see matmul_chain.h.
enum class EpilogueKind : uint8_t { kNone, kBias, kGelu, kGeluGrad };
struct MatmulEpilogue {
  EpilogueKind kind = EpilogueKind::kNone;
  int32_t bias = -1;    // operand of kBias and kGelu
  int32_t aux = -1;     // what gelu reads: written by kGelu, unless -1; read by kGeluGrad
  int32_t output = -1;  // instead of the op's
};

// What divides the addresses of a product's operands: powers of two, up to 256 bytes.
struct MatmulAlignment {
  uint32_t a = 256, b = 256, c = 256;  // A and B as cuBLAS counts the factors; C is the result
  uint32_t bias = 256, aux = 256;      // of the epilogue, if it has them
  bool operator==(const MatmulAlignment&) const = default;
};
MatmulAlignment leastOf(const MatmulAlignment& x, const MatmulAlignment& y);

class Matmul {
 public:
  // `library` outlives the result. kInvalidArgument: shapes or types that the op does not take, or
  // an epilogue with factors of f64.
  static Result<std::unique_ptr<Matmul>> create(const CublasLt& library,
                                                const program::SegmentOp& op,
                                                const std::vector<program::OperandType>& types,
                                                const MatmulEpilogue& epilogue = {});
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // By the algorithm that use() has said for operands of such an alignment; where it has said none,
  // by the heuristic's first choice, from then on.
  // kInternal: cuBLASLt has no algorithm, or refuses.
  Status run(void* const* operands, const Workspace& workspace, StreamHandle stream);

  // What an algorithm depends on, in words: equal for products that run the same algorithms.
  std::string key(const MatmulAlignment& alignment, int64_t workspaceBytes) const;
  MatmulAlignment alignmentOf(void* const* operands) const;
  // The heuristic's choices, best first: at least one, at most `most`. kInternal: there is none.
  Result<std::vector<MatmulAlgorithm>> candidates(const MatmulAlignment& alignment,
                                                  int64_t workspaceBytes, int most) const;
  // One run. False: cuBLASLt says that it does not support the algorithm. kInternal: another error.
  Result<bool> tryRun(const MatmulAlgorithm& algorithm, void* const* operands,
                      const Workspace& workspace, StreamHandle stream) const;
  // Whether cuBLASLt takes an algorithm that it has not offered here. kInvalidArgument: it does
  // not, or needs a larger workspace.
  Status accepts(const MatmulAlignment& alignment, const MatmulAlgorithm& algorithm,
                 int64_t workspaceBytes) const;
  // For all operands of at least this alignment.
  void use(const MatmulAlignment& alignment, const MatmulAlgorithm& algorithm);

 private:
  struct Choice {
    MatmulAlignment alignment;
    MatmulAlgorithm algorithm;
  };
  Matmul(const CublasLt& library, const program::SegmentOp& op, const MatmulEpilogue& epilogue)
      : library_(library), op_(op), epilogue_(epilogue) {}
  Status describe(const std::vector<program::OperandType>& types);
  Status describeEpilogue(int64_t columns);
  // To cuBLASLt: where they are, or, for its choices, any address that is aligned alike.
  int point(const void* bias, const void* aux) const;
  int pointAt(const MatmulAlignment& alignment) const;
  int32_t output() const { return epilogue_.output >= 0 ? epilogue_.output : op_.outputs[0]; }
  Status check(int status, const char* what) const;
  Result<const MatmulAlgorithm*> algorithmFor(void* const* operands, int64_t workspaceBytes);
  int launch(const MatmulAlgorithm& algorithm, void* const* operands, const Workspace& workspace,
             StreamHandle stream) const;

  const CublasLt& library_;
  program::SegmentOp op_;
  MatmulEpilogue epilogue_;
  int32_t operandA_ = -1, operandB_ = -1;  // as cuBLAS counts: column-major
  std::string shape_;                      // in words
  bool inF64_ = false;
  bool accumulates_ = false;
  void* desc_ = nullptr;
  void* layoutA_ = nullptr;
  void* layoutB_ = nullptr;
  void* layoutC_ = nullptr;
  std::vector<Choice> choices_;
};

}  // namespace trireme::runtime::cuda
