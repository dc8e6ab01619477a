// The kernels that the build compiled and put into this library; see cmake/cuda.cmake.
#include "runtime/device/cuda/gpu.h"

#if TRIREME_CUDA_KERNELS
#define TRIREME_EMBED(name, file)                                                  \
  __asm__(".section .rodata\n.balign 64\n" #name ":\n.incbin \"" file "\"\n" #name \
          "_end:\n.byte 0\n.previous\n");                                          \
  extern "C" const char name[], name##_end[];
TRIREME_EMBED(triremeKernelsSm80, TRIREME_CUDA_FOLDER "/kernels_sm_80.cubin")
TRIREME_EMBED(triremeKernelsSm90, TRIREME_CUDA_FOLDER "/kernels_sm_90.cubin")
TRIREME_EMBED(triremeKernelsPtx, TRIREME_CUDA_FOLDER "/kernels_80.ptx")
#endif

namespace trireme::runtime::cuda {

const std::vector<KernelImage>& shippedImages() {
#if TRIREME_CUDA_KERNELS
  const auto bytes = [](const char* begin, const char* end) {
    return std::string_view(begin, static_cast<size_t>(end - begin));
  };
  static const std::vector<KernelImage> images = {
      {80, false, bytes(triremeKernelsSm80, triremeKernelsSm80_end)},
      {90, false, bytes(triremeKernelsSm90, triremeKernelsSm90_end)},
      {80, true, bytes(triremeKernelsPtx, triremeKernelsPtx_end)}};
#else
  static const std::vector<KernelImage> images;
#endif
  return images;
}

}  // namespace trireme::runtime::cuda
