#include "runtime/device/cuda/segment_calls.h"

#include <set>

namespace trireme::runtime::cuda {
namespace {

// Slots in which the tasks of each body run.
std::vector<std::set<int32_t>> slotsOfBodies(const RankProgram& rank) {
  std::vector<std::set<int32_t>> slots(rank.bodies.size());
  for (const program::TaskRecord& task : rank.role->tasks)
    slots[static_cast<size_t>(task.body)].insert(task.slot);
  return slots;
}

std::vector<void*> addressesOf(const RankProgram& rank, const FlatInstruction& instruction,
                               int32_t repeat, int32_t slot) {
  std::vector<void*> addresses;
  for (int32_t i = 0; i < instruction.numOperands; ++i)
    addresses.push_back(
        rank.operands[static_cast<size_t>(instruction.firstOperand + i)].at(repeat, slot));
  return addresses;
}

}  // namespace

std::vector<std::vector<void*>> callsOf(const RankProgram& rank, int32_t segment) {
  const std::vector<std::set<int32_t>> slots = slotsOfBodies(rank);
  std::set<std::vector<void*>> calls;
  for (size_t b = 0; b < rank.bodies.size(); ++b)
    for (const Section& section : rank.bodies[b].sections)
      for (int32_t at = section.begin; at < section.end; ++at) {
        const FlatInstruction& instruction = rank.bodies[b].instructions[static_cast<size_t>(at)];
        if (instruction.kind != program::InstructionKind::kCompute ||
            instruction.segment != segment)
          continue;
        for (int32_t repeat = 0; repeat < section.count; ++repeat)
          for (const int32_t slot : slots[b])
            calls.insert(addressesOf(rank, instruction, repeat, slot));
      }
  return {calls.begin(), calls.end()};
}

}  // namespace trireme::runtime::cuda
