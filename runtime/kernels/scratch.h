// Divides a kernel's workspace into arrays.
#pragma once
#include <cstdint>

#include "ir/program/workspace.h"

namespace trireme::runtime {

// Each array starts at a multiple of 64 bytes and takes a multiple of 64 bytes of the workspace.
class Scratch {
 public:
  explicit Scratch(void* workspace)
      : next_((reinterpret_cast<uintptr_t>(workspace) + 63) & ~uintptr_t{63}) {}

  template <typename T>
  T* take(int64_t count) {
    T* array = reinterpret_cast<T*>(next_);
    next_ += static_cast<uintptr_t>(program::roundUp(count * static_cast<int64_t>(sizeof(T)), 64));
    return array;
  }

 private:
  uintptr_t next_;
};

}  // namespace trireme::runtime
