// A step as a picture: what every pipeline stage does when, and the memory that it holds meanwhile.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cost_models/simulate.h"
#include "ir/base/status.h"
#include "planner/query.h"

namespace trireme::planner {

// The step of a plan on the query's cluster, played task by task: its programs, or its schedule for
// a stack whose programs are not ours. Of that `program` is empty, and an event is a whole task.
struct PlayedPlan {
  program::Program program;
  cost::Simulation simulation;
};
// Errors: those of expand::expand and cost::simulate.
Result<PlayedPlan> playPlan(const Query& query, const plan::Plan& plan,
                            const cost::SimulationOptions& options);

// From `time` until the next point.
struct MemoryPoint {
  Seconds time;
  Bytes bytes;
};

// One rank of a pipeline stage; the others of the stage do the same at the same time, unless more
// than one timeline has their stage.
struct StageTimeline {
  int64_t stage = 0;
  int64_t numRanks = 0;               // that do the same
  std::vector<cost::PathItem> tasks;  // of some length, by begin
  // They add up to the step. Communication: collectives and transfers that stop the computing.
  Seconds forward, backward, communication, optimizer, idle;
  Bytes peak;  // memoryByStage: what the plan needs room for
  // What is held, a microbatch from the begin of its forward to the end of its backward. Never more
  // than `peak`; the rest of it is room for slots that are not all full at once.
  std::vector<MemoryPoint> memory;
};

struct Timeline {
  Seconds step;
  Bytes memoryAvailable;  // of one device
  std::vector<StageTimeline> stages;
};

// `played` needs SimulationOptions::tasks. Errors: those of cost::memoryByStage.
Result<Timeline> timelineOf(const Query& query, const plan::Plan& plan, const PlayedPlan& played);

// The last step of `events`, which a run measured: one rank of every stage, what its compute stream
// does. Collectives are with the waiting for other ranks. Without memory. No events: no stages.
Timeline timelineOf(const program::Program& program,
                    const std::vector<program::TraceEvent>& events);

// How much of a timeline a file gets: of many tasks per stage the first and the last, and what is
// between them as one sum; of many memory points the largest of each of as many equal times.
struct TimelineLimits {
  size_t tasks = 24000;       // of all stages together, but at least 40 of each
  size_t memoryPoints = 400;  // per stage
};

// Times as whole nanoseconds in columns, because there are many:
//   stepSeconds, memoryAvailableBytes, stages: [{stage, ranks, forwardSeconds, backwardSeconds,
//   communicationSeconds, optimizerSeconds, idleSeconds, peakBytes, numTasks,
//   tasks: {direction: "FFB...S", chunk, microbatch, begin, compute, communication, end: [...]},
//   between: null or {after: index of the first task behind it, numTasks, begin, end, forward,
//                     backward, communication, optimizer, idle},
//   memory: {time: [...], bytes: [...], window: 0 or the length of time of one point}}]
nlohmann::json toJson(const Timeline& timeline, const TimelineLimits& limits = {});

}  // namespace trireme::planner
