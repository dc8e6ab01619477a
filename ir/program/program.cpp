#include "ir/program/program.h"

namespace trireme::program {
namespace {

// In the order of InstructionKind.
constexpr std::array<std::string_view, kNumInstructionKinds> kInstructionNames = {
    "compute",           "send", "recv",        "all_reduce", "reduce_scatter", "all_gather",
    "load_batch",        "zero", "sum_squares", "adamw",      "repeat",         "wait",
    "update_loss_scale",
};
static_assert(kInstructionNames.back() == "update_loss_scale");

}  // namespace

std::string_view instructionName(InstructionKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kInstructionNames.size() ? kInstructionNames[index] : "unknown";
}

int64_t Parameter::localElements(int64_t tp) const {
  int64_t product = 1;
  for (int64_t dim : paddedDims) product *= dim;
  return tpDim >= 0 ? product / tp : product;
}

int64_t firstSample(const Training& training, int32_t dpIndex, int32_t microbatch) {
  // A replica owns B / d = m b consecutive samples.
  return (dpIndex * training.numMicrobatches + microbatch) * training.microbatchSize;
}

const Group& groupOf(const Program& program, int32_t rank, GroupKind kind) {
  const RankInfo& info = program.ranks[static_cast<size_t>(rank)];
  return program.groups[static_cast<size_t>(info.group[static_cast<size_t>(kind)])];
}

int32_t peerRank(const Program& program, int32_t rank, int32_t stage) {
  for (int32_t peer : groupOf(program, rank, GroupKind::kPp).ranks)
    if (program.ranks[static_cast<size_t>(peer)].ppIndex == stage) return peer;
  return -1;
}

}  // namespace trireme::program
