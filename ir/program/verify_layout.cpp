#include "ir/program/verify_layout.h"

#include <algorithm>

namespace trireme::program::verify {
namespace {

// What one chunk touches: its slotted bytes at slot 0, and the rest.
struct ChunkBytes {
  Span slot{INT64_MAX, INT64_MIN};
  int64_t stride = 0;
  bool sameStride = true;
};

void collect(const Role& role, const Body& body, Place place, ChunkBytes& chunk,
             std::vector<Span>& others) {
  place.slot = 0;
  forEachInstruction(body, [&](int32_t i, int32_t layer) {
    place.layer = layer;
    for (int32_t b : body.instructions[at(i)].buffers) {
      const Buffer& buffer = role.buffers[at(b)];
      const Span span = spanOf(buffer, place);
      if (buffer.slotStride == 0) {
        others.push_back(span);
        continue;
      }
      chunk.sameStride &= chunk.stride == 0 || chunk.stride == buffer.slotStride;
      chunk.stride = buffer.slotStride;
      chunk.slot = {std::min(chunk.slot.begin, span.begin), std::max(chunk.slot.end, span.end)};
    }
  });
}

}  // namespace

std::vector<TaskRecord> tasksWithNewBody(const Role& role) {
  std::vector<bool> seen(role.bodies.size());
  std::vector<TaskRecord> tasks;
  for (const TaskRecord& task : role.tasks) {
    if (!seen[at(task.body)]) tasks.push_back(task);
    seen[at(task.body)] = true;
  }
  return tasks;
}

SlotLayout findSlotLayout(const Role& role, const Place& place) {
  SlotLayout layout;
  std::vector<ChunkBytes> chunks(role.chunks.size());
  std::vector<Span> others;
  ChunkBytes step;
  for (const TaskRecord& task : tasksWithNewBody(role))
    collect(role, role.bodies[at(task.body)], place, task.chunk < 0 ? step : chunks[at(task.chunk)],
            others);
  for (size_t c = 0; c < chunks.size(); ++c) {
    const ChunkBytes& chunk = chunks[c];
    if (!chunk.sameStride || chunk.stride <= 0 || chunk.slot.end - chunk.slot.begin > chunk.stride)
      return layout;
    layout.regions.push_back(
        {chunk.slot.begin, chunk.slot.end + (role.chunks[c].numSlots - 1) * chunk.stride});
  }
  if (step.stride != 0) return layout;
  std::vector<Span> sorted = layout.regions;
  std::sort(sorted.begin(), sorted.end(), [](Span a, Span b) { return a.begin < b.begin; });
  for (size_t c = 1; c < sorted.size(); ++c)
    if (overlap(sorted[c - 1], sorted[c])) return layout;
  for (Span span : others) {
    auto region = std::lower_bound(sorted.begin(), sorted.end(), span.begin,
                                   [](Span r, int64_t begin) { return r.end <= begin; });
    if (region != sorted.end() && overlap(*region, span)) return layout;
  }
  layout.copies = true;
  return layout;
}

}  // namespace trireme::program::verify
