// The bundles that tests/gpu/prepare made.
#pragma once
#include <string>

#include "ir/program/bundle.h"

namespace trireme::runtime::gpu {

// TRIREME_GPU_BUNDLES of the environment, else that of the build. It need not exist.
std::string bundleFolder();
bool hasBundles();

// One that cannot be read fails the test; the result is empty then.
program::Bundle readBundleAt(const std::string& path);
program::Bundle bundleOf(const std::string& name);

// Leaves every op to the runtime's own kernels.
program::Bundle withoutGenerated(program::Bundle bundle);
// As the GPU of these tests can run it: an emulated one runs no generated code.
program::Bundle forTestGpu(program::Bundle bundle);

}  // namespace trireme::runtime::gpu
