// Hands out the slots of one chunk's activations: always the lowest that is free.
#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace trireme::schedule {

class Slots {
 public:
  int32_t take() {
    if (free_.empty()) return numSlots_++;
    const int32_t lowest = free_.top();
    free_.pop();
    return lowest;
  }
  // Requires a slot that is taken.
  void giveBack(int32_t slot) { free_.push(slot); }

 private:
  int32_t numSlots_ = 0;
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free_;
};

}  // namespace trireme::schedule
