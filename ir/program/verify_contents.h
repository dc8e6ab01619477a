// What every byte of one rank's arena holds while its program is executed in issue order.
// Internal to ir/program; see verify_contents.cpp.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/interval_map.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

// Who wrote a byte: an earlier step or the beginning, or a task of the pass that is executed.
enum class Owner : uint8_t { kBase, kForward, kBackward, kWeights, kStep };

// A task of the pass: not the step.
inline bool isOfPass(Owner owner) { return owner != Owner::kBase && owner != Owner::kStep; }
// Tasks that make gradients.
inline bool isBackward(Owner owner) {
  return owner == Owner::kBackward || owner == Owner::kWeights;
}

struct Content {
  DType dtype = DType::kF32;
  Span written;  // by one instruction
  Owner owner = Owner::kBase;
  uint8_t reduced = 0;   // bit per GroupKind
  bool partial = false;  // this rank's term of a sum over tp
  bool garbage = false;  // overwritten with nothing of use
  bool scratch = false;  // gone when its scope ends
  int32_t buffer = -1;   // through which it was written; -1: persistent state
  int32_t scope = 0;     // in which it was written: a task, or an iteration of its repeat
  int32_t value = -1;    // index into RoleMemory::values_
  int32_t version = 0;   // counts writes
};

// A result that somebody has to use.
struct Value {
  int32_t task = -1, body = -1, instruction = -1, buffer = -1;
  bool used = false;
};

inline uint8_t groupBit(GroupKind kind) {
  return static_cast<uint8_t>(1u << static_cast<int>(kind));
}

// Bytes that a task (index into Role::tasks) adds to or reduces.
struct TaskSpan {
  Span bytes;
  int32_t task = -1;
};

enum class Region : uint8_t { kParameter, kGradient, kState, kLossScaling, kLoss };

class RoleMemory {
 public:
  RoleMemory(const Context& context, int32_t role, int32_t tpIndex, int32_t dpIndex);

  // Persistent state and the beginning of the step. Comes first.
  Status prepare();
  // Executes a forward task and its backward: one task or two (indices into Role::tasks).
  Status pass(const std::vector<int32_t>& tasks);
  Status step();
  // After all passes.
  Status checkParameters() const;

  // Of the latest pass: what its tasks leave for later ones, and all that it writes.
  const std::vector<Span>& exposed() const { return exposed_; }
  const std::vector<Span>& written() const { return written_; }
  // Of the latest pass: the accumulators that it adds to, and those that it reduces.
  const std::vector<TaskSpan>& added() const { return added_; }
  const std::vector<TaskSpan>& reduced() const { return reduced_; }

 private:
  struct PairHash {
    size_t operator()(const std::pair<int32_t, int64_t>& pair) const {
      return std::hash<int64_t>()(pair.second * 0x9E3779B97F4A7C15 + pair.first);
    }
  };
  struct RegionOf {
    Region region = Region::kParameter;
    std::string name;
  };

  Status error(std::string_view label, const std::string& message) const;
  Span span(int32_t buffer) const;
  std::vector<Span> ownParts(const Bucket& bucket, int32_t buffer) const;
  bool zeroedAtEnd(Span accumulator) const;
  Status addRegion(int32_t buffer, Region region, bool defined);
  void findWorkspace();

  Status execute(int32_t body, int32_t slot);
  Status execute(const Instruction& in);
  Status compute(const Instruction& in);
  Status send(const Instruction& in);
  Status collective(const Instruction& in);
  Status sumSquares(const Instruction& in);
  Status adamW(const Instruction& in);
  Status updateLossScale(const Instruction& in);
  Status readNorm(const Instruction& in, bool sharded);

  // What the bytes hold; all of the buffer's by default.
  Result<Content> read(int32_t buffer, std::optional<Span> part = std::nullopt);
  Status checkContent(int32_t buffer, Span bytes, Span piece, const Content* content) const;
  Status checkGradient(const Instruction& in);
  Status checkGradient(const Bucket& bucket, int32_t index, Span own);
  Content contentOf(int32_t buffer) const;
  Content resultIn(int32_t buffer);
  Status checkUsed() const;
  // Bytes: content.written.
  Status write(Content content, const Instruction& in, bool accumulates);
  Status write(const Instruction& in, size_t i);
  Status addTo(Span accumulator, bool partial);
  bool mayWrite(const Instruction& in, Region region, bool accumulates) const;

  Status checkParts(const Instruction& in, Span from, Span to, const Content& content) const;
  const RegionOf* regionAt(Span bytes) const;
  uint8_t singleMember() const;
  Status checkSharing(const Instruction& in, const Segment& segment);
  bool maySucceed(const Instruction& in, const Segment& segment, int32_t first,
                  int32_t second) const;
  const Parameter* parameterAt(int32_t buffer, bool gradient, int32_t* layer = nullptr) const;
  Status checkWeights(const Instruction& in, const Segment& segment);
  bool givesPartial(const Instruction& in, const Segment& segment, const SegmentOp& op,
                    size_t output) const;
  bool isTied(int32_t bucket) const;

  const Context& context_;
  const Program& program_;
  int32_t index_;
  const Role& role_;
  Place place_;
  int32_t task_ = -1, body_ = -1, instruction_ = -1;
  Owner owner_ = Owner::kBase;
  int32_t scope_ = 0;  // counts tasks, and iterations of their repeats
  int32_t version_ = 0;
  bool workspaceShared_ = false;
  IntervalMap<RegionOf> regions_;
  IntervalMap<Content> base_;      // what a pass or the step finds
  IntervalMap<Content> overlay_;   // what it has written
  IntervalMap<bool> accumulated_;  // by passes; is it this rank's term of a sum over tp?
  IntervalMap<bool> used_;         // parameters that passes have read
  std::vector<Span> exposed_, written_;
  std::vector<TaskSpan> added_, reduced_;
  std::vector<Content> reductions_;  // of accumulators, by all passes: what the step finds
  std::vector<Value> values_;        // of the pass or the step
  // Of the pass, per (buffer, address): the version that was written, or that the forward has seen.
  // And what the backward has seen last, for the weights.
  using Versions = std::unordered_map<std::pair<int32_t, int64_t>, int32_t, PairHash>;
  Versions seen_, seenByBackward_;
  std::vector<std::pair<Span, bool>>
      sent_;  // of the body: what it sends; read since it was written?
};

}  // namespace trireme::program::verify
