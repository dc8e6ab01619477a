// The functions of NCCL that Trireme calls, as a table; see driver_api.h. A function returns 0 or
// NCCL's result.
#pragma once
#include <cstddef>
#include <string>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::runtime::cuda {

using NcclHandle = void*;  // ncclComm_t

struct NcclId {  // ncclUniqueId
  char bytes[128];
};

// The beginning of ncclConfig_t, which NCCL takes as it was in the version that it names.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cgaClusterSize = kUndefined;
  int minCtas = kUndefined;
  int maxCtas = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
  static constexpr int kUndefined = -0x7fffffff - 1;
};

// X(field, symbol, parameters)
#define TRIREME_NCCL_FUNCTIONS(X)                                                                \
  X(version, ncclGetVersion, (int* version))                                                     \
  X(uniqueId, ncclGetUniqueId, (NcclId * id))                                                    \
  X(create, ncclCommInitRankConfig,                                                              \
    (NcclHandle * comm, int numRanks, NcclId id, int rank, NcclConfig* config))                  \
  X(finalize, ncclCommFinalize, (NcclHandle comm))                                               \
  X(destroy, ncclCommDestroy, (NcclHandle comm))                                                 \
  X(abort, ncclCommAbort, (NcclHandle comm))                                                     \
  X(asyncError, ncclCommGetAsyncError, (NcclHandle comm, int* result))                           \
  X(allReduce, ncclAllReduce,                                                                    \
    (const void* from, void* to, size_t count, int type, int op, NcclHandle comm, void* stream)) \
  X(reduceScatter, ncclReduceScatter,                                                            \
    (const void* from, void* to, size_t count, int type, int op, NcclHandle comm, void* stream)) \
  X(allGather, ncclAllGather,                                                                    \
    (const void* from, void* to, size_t count, int type, NcclHandle comm, void* stream))         \
  X(send, ncclSend,                                                                              \
    (const void* from, size_t count, int type, int peer, NcclHandle comm, void* stream))         \
  X(receive, ncclRecv, (void* to, size_t count, int type, int peer, NcclHandle comm, void* stream))

struct NcclApi {
#define TRIREME_FIELD(field, symbol, parameters) int(*field) parameters = nullptr;
  TRIREME_NCCL_FUNCTIONS(TRIREME_FIELD)
#undef TRIREME_FIELD
  const char* (*errorString)(int result) = nullptr;     // ncclGetErrorString
  const char* (*lastError)(NcclHandle comm) = nullptr;  // ncclGetLastError
};

inline constexpr int kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7;
inline constexpr int kNcclInt8 = 0, kNcclInt32 = 2, kNcclFloat32 = 7, kNcclFloat64 = 8;
inline constexpr int kNcclFloat16 = 6, kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0, kNcclMax = 2;
// 2.18: the first whose communicators without blocking are as documented.
inline constexpr int kMinNcclVersion = 21800;

// kInvalidArgument: a type that programs do not reduce.
Result<int> ncclType(DType type);
int ncclOp(program::ReduceOp op);
// "2.28.9".
std::string ncclVersionName(int version);

// The library of this machine, loaded once and for ever.
// kUnavailable: there is none, or one that is older than kMinNcclVersion.
Result<const NcclApi*> loadNccl();
// kUnavailable: `api` is of an older version; names both.
Status checkNcclVersion(const NcclApi& api);

}  // namespace trireme::runtime::cuda
