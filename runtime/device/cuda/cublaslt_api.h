// The functions of cuBLASLt that Trireme calls, as a table; see driver_api.h. Matrices are
// column-major. A function returns 0 or cuBLAS's status.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/base/status.h"

namespace trireme::runtime::cuda {

// cublasLtMatmulHeuristicResult_t. The first member is the algorithm, which is opaque.
struct MatmulHeuristic {
  uint64_t algorithm[8];
  size_t workspaceBytes;
  int state;  // 0: usable
  float waves;
  int reserved[4];
};

#define TRIREME_CUBLASLT_FUNCTIONS(X)                                                          \
  X(create, cublasLtCreate, (void** handle))                                                   \
  X(destroy, cublasLtDestroy, (void* handle))                                                  \
  X(createDesc, cublasLtMatmulDescCreate, (void** desc, int computeType, int scaleType))       \
  X(destroyDesc, cublasLtMatmulDescDestroy, (void* desc))                                      \
  X(setDesc, cublasLtMatmulDescSetAttribute,                                                   \
    (void* desc, int attribute, const void* value, size_t bytes))                              \
  X(createLayout, cublasLtMatrixLayoutCreate,                                                  \
    (void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading))               \
  X(destroyLayout, cublasLtMatrixLayoutDestroy, (void* layout))                                \
  X(createPreference, cublasLtMatmulPreferenceCreate, (void** preference))                     \
  X(destroyPreference, cublasLtMatmulPreferenceDestroy, (void* preference))                    \
  X(setPreference, cublasLtMatmulPreferenceSetAttribute,                                       \
    (void* preference, int attribute, const void* value, size_t bytes))                        \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                 \
    (void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference,           \
     int requested, MatmulHeuristic* results, int* returned))                                  \
  X(matmul, cublasLtMatmul,                                                                    \
    (void* handle, void* desc, const void* alpha, const void* a, void* layoutA, const void* b, \
     void* layoutB, const void* beta, const void* c, void* layoutC, void* d, void* layoutD,    \
     const void* algorithm, void* workspace, size_t workspaceBytes, void* stream))             \
  X(checkAlgorithm, cublasLtMatmulAlgoCheck,                                                   \
    (void* handle, void* desc, void* a, void* b, void* c, void* d, const void* algorithm,      \
     MatmulHeuristic* result))

struct CublasLtApi {
#define TRIREME_FIELD(field, symbol, parameters) int(*field) parameters = nullptr;
  TRIREME_CUBLASLT_FUNCTIONS(TRIREME_FIELD)
#undef TRIREME_FIELD
  size_t (*version)() = nullptr;  // cublasLtGetVersion
};

inline constexpr int kComputeF32 = 68, kComputeF64 = 70;  // cublasComputeType_t
inline constexpr int kComputeTf32 = 77;                   // sums in f32 of factors in TF32
inline constexpr int kTypeF32 = 0, kTypeF64 = 1;          // cudaDataType_t
inline constexpr int kTypeF16 = 2, kTypeBf16 = 14;
inline constexpr int kOpNone = 0, kOpTranspose = 1;             // cublasOperation_t
inline constexpr int kDescTransposeA = 3, kDescTransposeB = 4;  // of a matmul
inline constexpr int kDescEpilogue = 7, kDescBiasPointer = 8;
inline constexpr int kDescAuxPointer = 11, kDescAuxLeading = 12;
inline constexpr int kEpilogueBias = 4, kEpilogueGeluBias = 36;  // cublasLtEpilogue_t
inline constexpr int kEpilogueGeluAuxBias = 164, kEpilogueGeluGrad = 192;
inline constexpr int kPreferenceWorkspaceBytes = 1;  // of the heuristic
inline constexpr int kPreferenceReductionSchemes = 3;
inline constexpr int kPreferenceAlignmentA = 5, kPreferenceAlignmentB = 6;
inline constexpr int kPreferenceAlignmentC = 7, kPreferenceAlignmentD = 8;
inline constexpr uint32_t kReduceInComputeType = 2;  // cublasLtReductionScheme_t
inline constexpr int kStatusNotSupported = 15;       // cublasStatus_t

// Of the latest version that the driver can serve: a library of CUDA 13 needs a driver of CUDA 13.
// kUnavailable: there is none, or only one that the driver is too old for.
Result<const CublasLtApi*> loadCublasLt();
// Its names, the first that there is to be taken; `driverVersion` as of cuDriverGetVersion.
std::vector<const char*> cublasLtNames(int driverVersion);

}  // namespace trireme::runtime::cuda
