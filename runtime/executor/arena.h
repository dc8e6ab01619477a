// The one block of memory of a rank: zeroed, page-aligned, exactly as large as the compiler placed.
#pragma once
#include <cstdint>
#include <utility>

#include "ir/base/status.h"

namespace trireme::runtime {

class Arena {
 public:
  Arena() = default;
  // kResourceExhausted: the system has no such block. Pages become real when they are first
  // touched.
  static Result<Arena> allocate(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace trireme::runtime
