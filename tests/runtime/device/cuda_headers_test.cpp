// The tables of functions are written by hand: here they are compared with the toolkit's headers,
// where there is one. All of it happens while this file is compiled.
#include <gtest/gtest.h>

#if __has_include(<cuda.h>) && __has_include(<cublasLt.h>)
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of a function
#include <cublasLt.h>
#include <cuda.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include <type_traits>

#include "runtime/device/cuda/cublaslt_api.h"
#include "runtime/device/cuda/driver_api.h"
#include "runtime/device/cuda/nccl_api.h"

namespace trireme::runtime::cuda {
namespace {

// Passed alike: pointers for pointers, numbers and enums of the same size.
template <typename A, typename B>
constexpr bool kAlike = std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B);

template <typename A, typename B>
struct Compatible : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
  requires(sizeof...(A1) == sizeof...(A2))
struct Compatible<R1 (*)(A1...), R2 (*)(A2...)>
    : std::bool_constant<kAlike<R1, R2> && (kAlike<A1, A2> && ...)> {};

#define TRIREME_COMPARE(field, symbol, parameters) \
  static_assert(Compatible<decltype(DriverApi::field), decltype(&::symbol)>::value, #symbol);
TRIREME_CUDA_DRIVER_FUNCTIONS(TRIREME_COMPARE)
#undef TRIREME_COMPARE
#define TRIREME_COMPARE(field, symbol, parameters) \
  static_assert(Compatible<decltype(CublasLtApi::field), decltype(&::symbol)>::value, #symbol);
TRIREME_CUBLASLT_FUNCTIONS(TRIREME_COMPARE)
#undef TRIREME_COMPARE

static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

static_assert(sizeof(KernelNodeParams) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
#define TRIREME_COMPARE(ours, theirs) \
  static_assert(offsetof(KernelNodeParams, ours) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, theirs));
TRIREME_COMPARE(function, func)
TRIREME_COMPARE(gridX, gridDimX)
TRIREME_COMPARE(blockX, blockDimX)
TRIREME_COMPARE(blockZ, blockDimZ)
TRIREME_COMPARE(sharedBytes, sharedMemBytes)
TRIREME_COMPARE(params, kernelParams)
TRIREME_COMPARE(extra, extra)
TRIREME_COMPARE(kernel, kern)
TRIREME_COMPARE(context, ctx)
#undef TRIREME_COMPARE

static_assert(sizeof(MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(MatmulHeuristic, workspaceBytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(kComputeF32 == CUBLAS_COMPUTE_32F && kComputeF64 == CUBLAS_COMPUTE_64F);
static_assert(kTypeF32 == CUDA_R_32F && kTypeF64 == CUDA_R_64F);
static_assert(kTypeF16 == CUDA_R_16F && kTypeBf16 == CUDA_R_16BF);
static_assert(kComputeTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(kOpNone == CUBLAS_OP_N && kOpTranspose == CUBLAS_OP_T);
static_assert(kDescTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(kDescTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(kDescEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(kDescBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(kDescAuxPointer == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
static_assert(kDescAuxLeading == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
static_assert(kEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kEpilogueGeluBias == CUBLASLT_EPILOGUE_GELU_BIAS);
static_assert(kEpilogueGeluAuxBias == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
static_assert(kEpilogueGeluGrad == CUBLASLT_EPILOGUE_DGELU);
static_assert(kPreferenceWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(std::is_same_v<decltype(CublasLtApi::version), decltype(&::cublasLtGetVersion)>);
static_assert(kPreferenceReductionSchemes == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(kReduceInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(kStatusNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(sizeof(MatmulHeuristic::algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(kPreferenceAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(kPreferenceAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(kPreferenceAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(kPreferenceAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

#if __has_include(<nccl.h>)
#define TRIREME_COMPARE(field, symbol, parameters) \
  static_assert(Compatible<decltype(NcclApi::field), decltype(&::symbol)>::value, #symbol);
TRIREME_NCCL_FUNCTIONS(TRIREME_COMPARE)
#undef TRIREME_COMPARE
static_assert(Compatible<decltype(NcclApi::errorString), decltype(&::ncclGetErrorString)>::value);
static_assert(Compatible<decltype(NcclApi::lastError), decltype(&::ncclGetLastError)>::value);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, maxCtas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, netName) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, splitShare) == offsetof(ncclConfig_t, splitShare));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kNcclSuccess == ncclSuccess && kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclInt32 == ncclInt32);
static_assert(kNcclFloat16 == ncclFloat16 && kNcclBfloat16 == ncclBfloat16);
static_assert(kNcclFloat32 == ncclFloat32 && kNcclFloat64 == ncclFloat64);
static_assert(kNcclSum == ncclSum && kNcclMax == ncclMax);
static_assert(kMinNcclVersion == NCCL_VERSION(2, 18, 0));

TEST(CudaTables, TheMagicNumberOfNcclsConfigurationIsTheHeaders) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
}
#endif

TEST(CudaTables, AgreeWithTheToolkit) { SUCCEED() << "compiled, so they do"; }

}  // namespace
}  // namespace trireme::runtime::cuda
#else
TEST(CudaTables, AgreeWithTheToolkit) { GTEST_SKIP() << "no CUDA toolkit to compare with"; }
#endif
