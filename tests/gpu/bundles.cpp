#include "tests/gpu/bundles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/gpu/test_gpu.h"

namespace trireme::runtime::gpu {

std::string bundleFolder() {
  const char* folder = std::getenv("TRIREME_GPU_BUNDLES");
  return folder != nullptr ? folder : TRIREME_GPU_BUNDLES;
}

bool hasBundles() { return std::filesystem::exists(bundleFolder()); }

program::Bundle readBundleAt(const std::string& path) {
  auto bundle = program::readBundle(path);
  EXPECT_TRUE(bundle.has_value()) << bundle.error().message() << " (tests/gpu/prepare makes it)";
  return bundle.has_value() ? *std::move(bundle) : program::Bundle();
}

program::Bundle bundleOf(const std::string& name) {
  return readBundleAt((std::filesystem::path(bundleFolder()) / name).string());
}

program::Bundle withoutGenerated(program::Bundle bundle) {
  bundle.kernels.assign(bundle.program.segments.size(), {});
  bundle.ptx.clear();
  bundle.cubins.clear();
  return bundle;
}

program::Bundle forTestGpu(program::Bundle bundle) {
  return isRealGpu() ? std::move(bundle) : withoutGenerated(std::move(bundle));
}

}  // namespace trireme::runtime::gpu
