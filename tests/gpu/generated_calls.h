// One call of a generated kernel, in memory that shows what it should not have done: each operand
// between guards, results that start as NaN. What it reads are the values that it has when its
// segment runs, by the reference, on random inputs.
#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime::gpu {

using Bytes = std::vector<char>;

struct GeneratedCall {
  const program::KernelCall* kernel = nullptr;
  std::vector<int32_t> read, written;  // operands; those that it adds to are written alone
};
// In order. The arguments outlive the result.
std::vector<GeneratedCall> generatedCallsOf(const program::Segment& segment,
                                            const program::CompiledSegment& compiled);

// Which operands that are written lie over one that is read.
using Overlay = std::map<int32_t, int32_t>;

// The ways in which the ranks' calls of a segment place the operands of `call`, each once.
// kInternal: a result overlaps an operand without beginning where it does.
Result<std::set<Overlay>> overlaysOf(const std::vector<RankProgram>& ranks, int32_t segment,
                                     const std::vector<program::OperandType>& types,
                                     const GeneratedCall& call);

// Of all operands of a segment, before it runs (of inputs, and of what is added to) and after it.
struct SegmentValues {
  std::vector<Bytes> before, after;
};
// Ids are below `numIds`; other inputs are normal draws, but for what only some values make sense
// of: inverse deviations, sums of exponentials and their logarithms.
// kInternal: a segment writes an operand twice, or after it has read it.
Result<SegmentValues> runSegmentByReference(const program::Segment& segment,
                                            const program::KernelContext& context, int64_t numIds,
                                            std::mt19937_64& random);

class CallImage {
 public:
  CallImage(const program::Segment& segment, const GeneratedCall& call, const SegmentValues& values,
            const Overlay& overlay);

  // All of the memory, as it is before the call.
  const Bytes& bytes() const { return bytes_; }
  // Of the operands, by their indices in the segment, where the image begins at `base`, a multiple
  // of 64; null for those that are not the call's.
  std::vector<void*> addresses(char* base) const;
  // What is wrong with the memory after the call; "": nothing. Results may differ from the
  // reference's by `tolerance` of the largest element.
  std::string check(const Bytes& after, double tolerance) const;

 private:
  struct Place {
    int64_t offset = 0, bytes = 0;
  };

  void place(int32_t operand, char guard);
  std::string checkOutside(const Bytes& after) const;
  std::string checkResult(int32_t operand, const Bytes& after, double tolerance) const;

  const program::Segment& segment_;
  const GeneratedCall& call_;
  const SegmentValues& values_;
  std::map<int32_t, Place> places_;
  Bytes bytes_;
};

}  // namespace trireme::runtime::gpu
