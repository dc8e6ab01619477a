#include "tests/support/shared_object.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

namespace trireme::testing {

void* loadSharedObject(const std::string& bytes) {
  char path[] = "/tmp/trireme-kernels-XXXXXX";
  const int file = mkstemp(path);
  EXPECT_GE(file, 0);
  EXPECT_EQ(write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(file);
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  unlink(path);
  return handle;
}

}  // namespace trireme::testing
