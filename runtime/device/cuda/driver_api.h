// The functions of the CUDA driver that Trireme calls, as a table: filled from libcuda.so.1 at run
// time, or by a test. No CUDA header is needed to build; tests compare the signatures and numbers
// below with the toolkit's where there is one. A function returns 0 or the driver's error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace trireme::runtime::cuda {

using DevicePointer = unsigned long long;
using ContextHandle = void*;
using ModuleHandle = void*;
using FunctionHandle = void*;
using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;
using GraphNodeHandle = void*;
using GraphExecHandle = void*;

// CUDA_KERNEL_NODE_PARAMS: what a node of a graph launches.
struct KernelNodeParams {
  FunctionHandle function = nullptr;
  unsigned gridX = 1, gridY = 1, gridZ = 1;
  unsigned blockX = 1, blockY = 1, blockZ = 1;
  unsigned sharedBytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;           // only used without a function
  ContextHandle context = nullptr;  // the same
};

// X(field, symbol, result, parameters)
#define TRIREME_CUDA_DRIVER_FUNCTIONS(X)                                                         \
  X(init, cuInit, (unsigned flags))                                                              \
  X(driverVersion, cuDriverGetVersion, (int* version))                                           \
  X(errorString, cuGetErrorString, (int error, const char** text))                               \
  X(deviceCount, cuDeviceGetCount, (int* count))                                                 \
  X(device, cuDeviceGet, (int* device, int ordinal))                                             \
  X(deviceName, cuDeviceGetName, (char* name, int length, int device))                           \
  X(deviceAttribute, cuDeviceGetAttribute, (int* value, int attribute, int device))              \
  X(retainContext, cuDevicePrimaryCtxRetain, (ContextHandle * context, int device))              \
  X(releaseContext, cuDevicePrimaryCtxRelease_v2, (int device))                                  \
  X(setContext, cuCtxSetCurrent, (ContextHandle context))                                        \
  X(memoryInfo, cuMemGetInfo_v2, (size_t* available, size_t* total))                             \
  X(allocate, cuMemAlloc_v2, (DevicePointer * data, size_t bytes))                               \
  X(release, cuMemFree_v2, (DevicePointer data))                                                 \
  X(allocateHost, cuMemHostAlloc, (void** data, size_t bytes, unsigned flags))                   \
  X(releaseHost, cuMemFreeHost, (void* data))                                                    \
  X(copyToDevice, cuMemcpyHtoDAsync_v2,                                                          \
    (DevicePointer to, const void* from, size_t bytes, StreamHandle stream))                     \
  X(copyToHost, cuMemcpyDtoHAsync_v2,                                                            \
    (void* to, DevicePointer from, size_t bytes, StreamHandle stream))                           \
  X(copyOnDevice, cuMemcpyDtoDAsync_v2,                                                          \
    (DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream))                   \
  X(fill, cuMemsetD8Async,                                                                       \
    (DevicePointer to, unsigned char byte, size_t bytes, StreamHandle stream))                   \
  X(priorities, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                        \
  X(createStream, cuStreamCreateWithPriority,                                                    \
    (StreamHandle * stream, unsigned flags, int priority))                                       \
  X(destroyStream, cuStreamDestroy_v2, (StreamHandle stream))                                    \
  X(synchronize, cuStreamSynchronize, (StreamHandle stream))                                     \
  X(queryStream, cuStreamQuery, (StreamHandle stream))                                           \
  X(writeValue, cuStreamWriteValue32_v2,                                                         \
    (StreamHandle stream, DevicePointer to, uint32_t value, unsigned flags))                     \
  X(waitEvent, cuStreamWaitEvent, (StreamHandle stream, EventHandle event, unsigned flags))      \
  X(createEvent, cuEventCreate, (EventHandle * event, unsigned flags))                           \
  X(destroyEvent, cuEventDestroy_v2, (EventHandle event))                                        \
  X(recordEvent, cuEventRecord, (EventHandle event, StreamHandle stream))                        \
  X(elapsedTime, cuEventElapsedTime, (float* milliseconds, EventHandle begin, EventHandle end))  \
  X(loadModule, cuModuleLoadData, (ModuleHandle * module, const void* image))                    \
  X(unloadModule, cuModuleUnload, (ModuleHandle module))                                         \
  X(function, cuModuleGetFunction,                                                               \
    (FunctionHandle * function, ModuleHandle module, const char* name))                          \
  X(launch, cuLaunchKernel,                                                                      \
    (FunctionHandle function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,   \
     unsigned blockY, unsigned blockZ, unsigned sharedBytes, StreamHandle stream, void** params, \
     void** extra))                                                                              \
  X(beginCapture, cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                      \
  X(endCapture, cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                  \
  X(captureInfo, cuStreamGetCaptureInfo_v2,                                                      \
    (StreamHandle stream, int* state, uint64_t* id, GraphHandle* graph,                          \
     const GraphNodeHandle** last, size_t* numLast))                                             \
  X(instantiateGraph, cuGraphInstantiateWithFlags,                                               \
    (GraphExecHandle * exec, GraphHandle graph, unsigned long long flags))                       \
  X(setKernelNode, cuGraphExecKernelNodeSetParams_v2,                                            \
    (GraphExecHandle exec, GraphNodeHandle node, const KernelNodeParams* params))                \
  X(uploadGraph, cuGraphUpload, (GraphExecHandle exec, StreamHandle stream))                     \
  X(launchGraph, cuGraphLaunch, (GraphExecHandle exec, StreamHandle stream))                     \
  X(destroyGraphExec, cuGraphExecDestroy, (GraphExecHandle exec))                                \
  X(destroyGraph, cuGraphDestroy, (GraphHandle graph))

struct DriverApi {
#define TRIREME_FIELD(field, symbol, parameters) int(*field) parameters = nullptr;
  TRIREME_CUDA_DRIVER_FUNCTIONS(TRIREME_FIELD)
#undef TRIREME_FIELD
};

inline constexpr int kMultiprocessorCount = 16;  // attributes of a device
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;  // what other threads call is no part of it
inline constexpr int kNotReady = 600;          // of a query: there is work left
// How many queues a process has to a GPU: a variable that the driver reads when it starts. Where
// nobody has set it, Gpu::count() sets the most there can be.
inline constexpr const char* kConnectionsVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr int kMaxConnections = 32;

// Whether loading a module fails with this because of what the image is: invalid, or code or PTX
// for other GPUs or later drivers.
inline bool refusesImage(int error) {
  return error == 200 || error == 209 || error == 218 || error == 222;
}

inline constexpr int kMinDriverVersion = 12000;  // CUDA 12.0: the first with sm_90a

// The driver of this machine, loaded once and for ever.
// kUnavailable: there is no driver, or one that lacks a function; names it and what to install.
Result<const DriverApi*> loadDriver();

// kInternal, with the driver's words, unless `error` is 0. `what`: "allocating 3 GiB for rank 0".
Status driverStatus(const DriverApi& api, int error, const std::string& what);

}  // namespace trireme::runtime::cuda
