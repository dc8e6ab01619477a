#include "runtime/executor/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "ir/base/format.h"

namespace trireme::runtime {

Result<Arena> Arena::allocate(int64_t bytes) {
  if (bytes < 0) return Error(invalidArgument("an arena of negative size"));
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return Error(resourceExhausted(fmt::format("no memory for an arena of {}",
                                               formatBytes(Bytes(static_cast<double>(bytes))))));
  madvise(data, size, MADV_HUGEPAGE);  // fewer address translations; without it all works as well
  Arena arena;
  arena.data_ = static_cast<char*>(data);
  arena.bytes_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(std::max<int64_t>(bytes_, 1)));
}

}  // namespace trireme::runtime
