// Whether the slots of a role's chunks are copies of each other. Internal to ir/program.
#pragma once
#include <vector>

#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

struct SlotLayout {
  // The slots of every chunk lie side by side in a region of the chunk's own, so what holds for
  // slot 0 holds, shifted, for all. Otherwise every slot has to be looked at.
  bool copies = false;
  std::vector<Span> regions;  // per chunk: all its slots (if copies)
};

// For the rank at place.tpIndex, place.dpIndex.
SlotLayout findSlotLayout(const Role& role, const Place& place);

// One task per body, in order.
std::vector<TaskRecord> tasksWithNewBody(const Role& role);

}  // namespace trireme::program::verify
