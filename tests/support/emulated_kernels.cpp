// The GPU's kernels, compiled by the host's compiler.
#include <map>
#include <string>

#include "tests/support/emulated_gpu.h"

namespace trireme {
namespace {

std::map<std::string, testing::EmulatedKernel>& registry() {
  static std::map<std::string, testing::EmulatedKernel> kernels;
  return kernels;
}

}  // namespace

const std::map<std::string, testing::EmulatedKernel>& testing::emulatedKernels() {
  return registry();
}

}  // namespace trireme

#include "runtime/device/cuda/kernels/all.cu"

namespace trireme::runtime::cuda {

HostKernel::HostKernel(const char* name, int64_t argsBytes, void (*run)(const void* args)) {
  registry()[name] = {argsBytes, run};
}

}  // namespace trireme::runtime::cuda
