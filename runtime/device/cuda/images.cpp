// The kernels that the build compiled and put into this library (see cmake/cuda.cmake), those of a
// bundle, and which of them a GPU runs.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

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
namespace {

bool fits(const KernelImage& image, int capability) {
  if (image.exact) return image.capability == capability;
  return image.capability <= capability && (image.ptx || image.capability / 10 == capability / 10);
}

}  // namespace

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

std::vector<KernelImage> generatedImages(const program::Bundle& bundle,
                                         const std::vector<program::GpuTarget>& targets) {
  std::vector<KernelImage> images;
  for (const program::GpuTarget& target : targets)
    for (const program::Cubin& cubin : bundle.cubins)
      if (cubin.target == target.name)
        images.push_back({target.capability, false, cubin.bytes, target.exact});
  const program::GpuTarget& lowest = program::ptxTarget(targets);
  if (!bundle.ptx.empty()) images.push_back({lowest.capability, true, bundle.ptx, lowest.exact});
  return images;
}

std::string describe(const KernelImage& image) {
  return fmt::format("{} {}{}", image.ptx ? "PTX for" : "code for",
                     program::capabilityName(image.capability), image.exact ? " alone" : "");
}

Result<std::vector<KernelImage>> imagesFor(std::vector<KernelImage> images, int capability,
                                           std::string_view whose) {
  std::string list;
  for (const KernelImage& image : images) list += (list.empty() ? "" : ", ") + describe(image);
  std::erase_if(images, [&](const KernelImage& image) { return !fits(image, capability); });
  if (images.empty())
    return Error(unavailable(fmt::format("no kernels for a GPU of compute capability {}: {} has {}",
                                         program::capabilityName(capability), whose,
                                         list.empty() ? "none" : list)));
  const auto rank = [](const KernelImage& i) { return std::tuple(!i.ptx, i.capability, i.exact); };
  std::stable_sort(images.begin(), images.end(),
                   [&](const KernelImage& a, const KernelImage& b) { return rank(a) > rank(b); });
  return images;
}

}  // namespace trireme::runtime::cuda
