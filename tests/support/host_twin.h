// What a kernel generated for GPUs is on the emulated one: the same kernel, generated for this
// host, whose results have the same bits.
#pragma once
#include <memory>

#include "ir/program/bundle.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::testing {

// `library` is where `kernel` lives, and `call` how its segment calls it.
inline EmulatedKernel hostTwin(std::shared_ptr<void> library, program::GeneratedKernel kernel,
                               const program::KernelCall& call) {
  const size_t operandBytes = call.operands.size() * sizeof(void*);
  return {static_cast<int64_t>(sizeof(program::KernelContext) + operandBytes),
          [library = std::move(library), kernel, extent = call.extent](const void* args) {
            const auto* context = static_cast<const program::KernelContext*>(args);
            kernel(context, reinterpret_cast<void* const*>(context + 1), 0, extent);
          }};
}

}  // namespace trireme::testing
