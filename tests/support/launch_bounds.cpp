#include "tests/support/launch_bounds.h"

#include <charconv>

#include "runtime/device/cuda/gpu.h"

namespace trireme::testing {
namespace {

constexpr std::string_view kEntry = ".entry ", kBound = ".maxntid ";

}  // namespace

// ".visible .entry name(", its parameters, and before its body perhaps ".maxntid 256, 1, 1".
std::map<std::string, unsigned> launchBoundsOf(std::string_view ptx) {
  std::map<std::string, unsigned> bounds;
  for (size_t at = ptx.find(kEntry); at != std::string_view::npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    const std::string name(ptx.substr(at, ptx.find('(', at) - at));
    const std::string_view head = ptx.substr(at, ptx.find('{', at) - at);
    const size_t bound = head.find(kBound);
    if (bound == std::string_view::npos) continue;
    std::from_chars(head.data() + bound + kBound.size(), head.data() + head.size(), bounds[name]);
  }
  return bounds;
}

const std::map<std::string, unsigned>& launchBounds() {
  static const std::map<std::string, unsigned> bounds = [] {
    for (const runtime::cuda::KernelImage& image : runtime::cuda::shippedImages())
      if (image.ptx) return launchBoundsOf(image.bytes);
    return std::map<std::string, unsigned>();
  }();
  return bounds;
}

}  // namespace trireme::testing
