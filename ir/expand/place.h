// Places the temporaries of a pass in scratch. Internal to ir/expand.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/expand/lower_block.h"

namespace trireme::expand {

inline constexpr int64_t kAlignment = 64;
constexpr int64_t alignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Placement {
  // The value whose memory this one uses: itself, or one that it meets in an elementwise op.
  std::vector<ValueId> root;
  std::vector<int64_t> scratchOffset;  // of a temporary root, bytes
  int64_t scratchBytes = 0;
};

// Two temporaries that are alive at once never overlap, where a run of generated ops, which codegen
// may fuse, is one point in time; a temporary that dies in an elementwise op gives its place to the
// result. In a backward pass a temporary or kept result may also take the place of a saved
// activation that the op is the last to read (the gradient of the logits overwrites the logits).
// Greedy by size, which is within a few percent of the peak of live bytes.
Placement placeTemporaries(const LoweredPass& pass, bool isBackward);

}  // namespace trireme::expand
