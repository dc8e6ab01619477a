// Plays the programs of a step against the clock: the very instructions that the runtime executes.
//
// Instructions are issued infinitely far ahead. The instructions of one stream follow each other; a
// wait holds its stream until the event. A send and its receive start when both are reached and end
// together; so do the collectives of a group. Streams do not slow each other down: a provider that
// models contention gives longer times. Where reductions cannot run beside computation their
// instructions are of the compute stream.
#pragma once
#include <array>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/program.h"
#include "ir/program/trace.h"

namespace trireme::cost {

// How long things take. Calls are few: once per body, not once per execution.
class CostProvider {
 public:
  virtual ~CostProvider() = default;
  // One segment on one rank.
  virtual Seconds compute(const program::Program& program, int32_t rank,
                          const program::Segment& segment) const = 0;
  // From both sides being there to both being done.
  virtual Seconds send(const program::Program& program, int32_t from, int32_t to,
                       Bytes payload) const = 0;
  // From the last member's arrival to all being done. `payload` is the full tensor: what an
  // all-reduce holds on each rank, an all-gather produces, a reduce-scatter consumes.
  virtual Seconds collective(const program::Program& program, const program::Group& group,
                             program::InstructionKind kind, Bytes payload) const = 0;
  // kLoadBatch, kZero, kSumSquares, kAdamW.
  virtual Seconds local(const program::Program& program, int32_t rank,
                        const program::Instruction& instruction) const = 0;
  // Whether the streams of reductions run beside the compute stream.
  virtual bool overlapsReductions() const { return true; }
};

struct RankUse {
  int32_t rank = 0;
  int64_t numAlike = 1;                              // ranks that it stands for, itself included
  std::array<Seconds, program::kNumStreams> busy{};  // executing, not waiting
  // Activations alive at once, of all chunks: from the forward until the backward is done.
  int32_t peakLive = 0;
  std::vector<int32_t> peakLivePerChunk;
};

// A task on one rank, or a stretch of it. On the critical path its parts add up to its length.
struct PathItem {
  int32_t stage = 0;  // pipeline rank
  program::Direction direction = program::Direction::kForward;
  int32_t chunk = 0, microbatch = 0;
  Seconds begin, end;
  Seconds compute;   // segments, and what a rank does on its own
  Seconds transfer;  // messages between stages
  // All-reduce and reduce-scatter. Of tasks: what runs beside is what the compute stream waits for.
  std::array<Seconds, program::kNumGroupKinds> reduce{};
  std::array<Seconds, program::kNumGroupKinds> gather{};  // all-gather
};

struct SimulationOptions {
  // Ranks that cannot be told apart take equal time and are simulated once. With `allRanks`
  // everyone is: for providers whose times depend on where a rank is.
  bool allRanks = false;
  bool trace = false;
  bool path = false;
  bool tasks = false;
};

struct Simulation {
  Seconds makespan;
  std::vector<RankUse> ranks;  // the simulated ones
  // Of the simulated ranks, in the order of ranks and issue. Empty unless asked for.
  std::vector<program::TraceEvent> events;
  // The critical path: every item begins when the one before it ends, the first at 0, and the last
  // ends at `makespan`; whatever makes one of them longer makes the step longer, or another path
  // critical. Where several paths are, the one that stays on its stream. Empty unless asked for.
  std::vector<PathItem> path;
  // Every task of the simulated ranks, on each in the order of issue, one list per entry of
  // `ranks`: what it does on its compute stream, from the begin of the first to the end of the last
  // of it. What it waits for in between is in none of its parts, but for reductions that run
  // beside it. Empty unless asked for.
  std::vector<std::vector<PathItem>> tasks;
};

// Exact for the given durations. Requires a program that passes verifyProgram.
// kInvalidArgument: a deadlock (who waits for whom), or a program without ranks.
Result<Simulation> simulate(const program::Program& program, const CostProvider& costs,
                            const SimulationOptions& options = {});

}  // namespace trireme::cost
