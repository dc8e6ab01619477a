// Plays the programs of all ranks against each other: streams in order, waits on events, sends that
// block until they are received, collectives that block until all members have come. The verifier
// asks whether everybody reaches the end; the simulator gives durations and asks when.
#pragma once
#include <vector>

#include "ir/base/status.h"
#include "ir/program/symmetry.h"
#include "ir/program/walk.h"

namespace trireme::program {

// One instruction inside a kLocal step.
struct FlowPart {
  int32_t instruction = 0;
  int32_t layer = 0;
  double seconds = 0;
};

// A stretch of one stream between two meetings with other streams or ranks.
struct FlowStep {
  enum class Kind : uint8_t { kLocal, kWait, kSend, kRecv, kCollective };
  Kind kind = Kind::kLocal;
  Stream stream = Stream::kCompute;
  int32_t instruction = 0;  // the last one of a kLocal step
  int32_t layer = 0;
  EventRef event;      // kWait: awaited; else signalled at the end
  double seconds = 0;  // kLocal: sum of its parts; else how long it takes once all are there
  int32_t firstPart = 0, numParts = 0;
};

// A body as its meetings.
struct Flow {
  std::vector<FlowStep> steps;
  std::vector<FlowPart> parts;
};

// `blocking`: the kinds of groups whose members can differ; collectives of others are local work.
Flow flowOf(const Body& body, const std::array<bool, kNumGroupKinds>& blocking);
// The kinds of groups that have members of several classes.
std::array<bool, kNumGroupKinds> blockingKinds(const Program& program, const Symmetry& symmetry);

// When one step of a task was executed.
struct PlayedStep {
  int32_t task = 0;  // index into Role::tasks
  int32_t step = 0;  // index into Flow::steps of the task's body
  double begin = 0, end = 0;
  // The step that this one could not begin before (a wait: not end before): Played::ranks
  // [causeRank][causeStep], which ends at `begin` (a wait: at `end`). -1: it begins at once.
  int32_t causeRank = -1, causeStep = -1;
};

struct Played {
  std::vector<std::vector<PlayedStep>> ranks;  // per class of ranks, in issue order
  double seconds = 0;                          // when the last step ends
};

// flows[class of ranks][body]. Exact for any durations: without shared resources a play has one
// outcome. A step that takes no time and signals nothing is left out. Requires a program that
// passes (V1). kInvalidArgument: a deadlock; the message is the chain of who waits for whom.
Result<Played> play(const Program& program, const Symmetry& symmetry,
                    const std::vector<std::vector<Flow>>& flows);

}  // namespace trireme::program
