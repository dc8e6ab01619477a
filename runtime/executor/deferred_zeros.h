// Zeros that are written only when somebody needs them. What would be added to zeros can then be
// written in their place, which saves writing them and reading them back.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {

// Of one rank, and used by its thread only. Ranges given to add() do not overlap, but for those
// that are equal.
class DeferredZeros {
 public:
  explicit DeferredZeros(ThreadPool& pool) : pool_(pool) {}

  // From now on [data, data + bytes) is zero.
  void add(void* data, int64_t bytes);
  bool empty() const { return pieces_.empty(); }

  // Whether all of [data, data + bytes) is put off. If so it no longer is: the caller writes there.
  bool take(void* data, int64_t bytes);

  // Write what is put off: of [data, data + bytes); of the range that holds `data`; all.
  void write(void* data, int64_t bytes);
  void writeRangeOf(const void* data);
  void writeAll();

 private:
  struct Piece {
    char *begin, *end;
  };
  std::vector<Piece> ranges_, pieces_;
  ThreadPool& pool_;

  void cut(size_t piece, char* begin, char* end);
  void clear(char* begin, char* end);
};

}  // namespace trireme::runtime
