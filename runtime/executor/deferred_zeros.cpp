#include "runtime/executor/deferred_zeros.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "runtime/kernels/kernels.h"

namespace trireme::runtime {

void DeferredZeros::add(void* data, int64_t bytes) {
  auto* begin = static_cast<char*>(data);
  const Piece range = {begin, begin + bytes};
  const auto overlaps = [&](const Piece& other) {
    return other.begin < range.end && range.begin < other.end;
  };
  std::erase_if(pieces_, overlaps);
  std::erase_if(ranges_, overlaps);
  ranges_.push_back(range);
  pieces_.push_back(range);
}

// Leaves what is before `begin` and behind `end`.
void DeferredZeros::cut(size_t piece, char* begin, char* end) {
  const Piece whole = pieces_[piece];
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(piece));
  if (whole.begin < begin) pieces_.push_back({whole.begin, begin});
  if (end < whole.end) pieces_.push_back({end, whole.end});
}

bool DeferredZeros::take(void* data, int64_t bytes) {
  auto* begin = static_cast<char*>(data);
  for (size_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].begin <= begin && begin + bytes <= pieces_[i].end) {
      cut(i, begin, begin + bytes);
      return true;
    }
  return false;
}

void DeferredZeros::clear(char* begin, char* end) {
  constexpr int64_t kGrain = 1 << 20;
  const auto body = [&](int64_t from, int64_t to) {
    std::memset(begin + from, 0, static_cast<size_t>(to - from));
  };
  parallelFor(pool_, end - begin, kGrain, std::ref(body));
}

void DeferredZeros::write(void* data, int64_t bytes) {
  auto* begin = static_cast<char*>(data);
  for (size_t i = 0; i < pieces_.size();) {
    char* from = std::max(begin, pieces_[i].begin);
    char* to = std::min(begin + bytes, pieces_[i].end);
    if (from >= to) {
      ++i;
      continue;
    }
    cut(i, from, to);
    clear(from, to);
  }
}

void DeferredZeros::writeRangeOf(const void* data) {
  for (const Piece& range : ranges_)
    if (range.begin <= data && data < range.end) return write(range.begin, range.end - range.begin);
}

void DeferredZeros::writeAll() {
  for (const Piece& piece : pieces_) clear(piece.begin, piece.end);
  pieces_.clear();
}

}  // namespace trireme::runtime
