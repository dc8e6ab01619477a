// A pipeline flush played task by task: exact for the given times, where pipelineTime is a closed
// form that knows of uneven stages only their sums, first and last chunks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cost_models/pipeline.h"
#include "cost_models/simulate.h"
#include "cost_models/task_order.h"
#include "ir/schedule/schedule.h"

namespace trireme::cost {

// Tasks start in the order of the pipeline's schedule, when their rank is free and their input has
// arrived. With overlap an activation arrives a hop after it was made, or after its slot was left
// free and the link has handed on the message before (Pipeline::receivesIntoSlots); without, every
// pass takes Pipeline::stop() longer.
// Of the result `ranks` and `events` stay empty; `tasks` has one list per stage, unless not asked
// for; of an item only `transfer` is set apart: on the path all that it waits for, in `tasks` what
// the rank is busy with. Takes time and memory per pass of a microbatch. Requires what the
// schedule's generator requires.
Simulation play(const Pipeline& pipeline, bool keepsTasks = true);

// How long the flush takes: pipelineTime where that is exact (gpipe; even stages and hops without
// slots), otherwise the longer of it and the schedule played. Monotone in every time, as both are.
// With post-validation the longer of pipelineTime and what a second flush adds to one.
Seconds flushTime(const Pipeline& pipeline);

// The critical path of a flush played, without its order: how often it takes which pass. Or what a
// second flush adds to that of one, which may be less than nothing.
struct Chain {
  Seconds length;  // hops and transfers included
  size_t chunks = 0;
  std::vector<int32_t> passes;  // by stage, direction (forward, backward, weights), chunk

  int32_t& passesAt(size_t stage, size_t direction, size_t chunk) {
    return passes[(stage * TaskOrder::kDirections + direction) * chunks + chunk];
  }
  int32_t passesAt(size_t stage, size_t direction, size_t chunk) const {
    return passes[(stage * TaskOrder::kDirections + direction) * chunks + chunk];
  }
};

// All of them, for many pipelines of a few shapes, whose times alone differ: the order of the
// tasks, and what each waits for, is worked out once for a schedule, numbers of stages, chunks and
// microbatches, and receivesIntoSlots.
class FlushPlayer {
 public:
  Simulation play(const Pipeline& pipeline, bool keepsTasks = true);
  // flushTime(), and where asked for the chain of the flush played; with post-validation what the
  // second one adds.
  Seconds timeOf(const Pipeline& pipeline, Chain* chain = nullptr);
  Chain chainOf(const Pipeline& pipeline);
  // Of the stages of such a pipeline from `first` on (tail_player.h).
  std::shared_ptr<const TaskOrder> orderOf(const Pipeline& pipeline, size_t first = 0);
  // Forgets what it worked out if that has become much, tens of megabytes.
  void trim();

 private:
  class Player;
  struct Shape {
    plan::ScheduleKind schedule;
    size_t stages, chunks;
    int64_t microbatches;
    bool intoSlots, isTwice;  // the flush comes twice
    auto operator<=>(const Shape&) const = default;
  };

  static Shape shapeOf(const Pipeline& pipeline);
  Chain chainOf(const Shape& shape, const Pipeline& pipeline);
  const schedule::Schedule& scheduleOf(const Shape& shape);
  std::shared_ptr<const TaskOrder> orderOf(const Shape& shape, size_t first);

  std::map<Shape, schedule::Schedule> schedules_;
  std::map<std::pair<Shape, size_t>, std::shared_ptr<const TaskOrder>> orders_;
  int64_t numTasks_ = 0;  // in all of them
  // Of the last play, by step; and by pass.
  std::vector<Seconds> ends_, arrivals_, durations_;
  std::vector<Seconds> flights_;  // by way
};

}  // namespace trireme::cost
