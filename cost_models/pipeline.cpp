#include "cost_models/pipeline.h"

#include <algorithm>
#include <utility>

#include "ir/base/status.h"
#include "ir/schedule/schedule.h"

namespace trireme::cost {
namespace {

Seconds sum(const std::vector<Seconds>& times) {
  Seconds total;
  for (Seconds t : times) total += t;
  return total;
}

// What the closed form knows of a stage. Transfers that stop the rank are a part of its times.
struct StageSums {
  Seconds forward, backward, weights;  // all chunks
  Seconds first, last;                 // both passes of the first and the last chunk
  Seconds total() const { return forward + backward + weights; }
};

StageSums sumsOf(const StageTimes& stage, Seconds stop) {
  StageSums sums;
  for (const Seconds t : stage.forward) sums.forward += t + stop;
  for (const Seconds t : stage.backward) sums.backward += t + stop;
  sums.weights = sum(stage.weights);
  sums.first = (stage.forward.front() + stop) + (stage.backward.front() + stop);
  sums.last = (stage.forward.back() + stop) + (stage.backward.back() + stop);
  return sums;
}

// Equal jobs through a flow shop.
Seconds flowTime(const std::vector<StageSums>& stages, Seconds StageSums::* pass, double jobs,
                 Seconds hop) {
  Seconds all, slowest = hop;
  for (const StageSums& stage : stages) {
    all += stage.*pass;
    slowest = std::max(slowest, stage.*pass);
  }
  return all + slowest * (jobs - 1) + hop * static_cast<double>(stages.size() - 1);
}

Seconds gpipeTime(const std::vector<StageSums>& stages, double m, Seconds hop) {
  return flowTime(stages, &StageSums::forward, m, hop) +
         flowTime(stages, &StageSums::backward, m, hop);
}

// Of an interleaved stage of v chunks, for transfers longer than its chunks.
Seconds groupStall(const StageSums& stage, double groups, double v, double p, Seconds hop) {
  const Seconds rest = std::max(hop - stage.forward / v, Seconds(0)) +
                       std::max(hop - stage.backward / v, Seconds(0));
  return rest * ((groups - 1) * (v - 1) * p);
}

Seconds bottleneckTime(const std::vector<StageSums>& stages, double m, double v, Seconds hop) {
  const auto p = static_cast<double>(stages.size());
  Seconds after;
  for (const StageSums& stage : stages) after += stage.last;
  Seconds before, longest;
  for (const StageSums& stage : stages) {
    after -= stage.last;
    const Seconds stall = v > 1 ? groupStall(stage, m / p, v, p, hop) : Seconds(0);
    longest = std::max(longest, stage.total() * m + before + after + stall);
    before += stage.first;
  }
  return longest;
}

Seconds stallTime(const std::vector<StageSums>& stages, int64_t m, Seconds hop) {
  Seconds slowest;
  for (const StageSums& stage : stages) slowest = std::max(slowest, stage.total());
  Seconds behind = stages.back().total(), longest;
  if (m < 2) return longest;
  for (size_t i = stages.size() - 1; i-- > 0;) {
    behind += stages[i].total();
    const auto inFlight = static_cast<int64_t>(stages.size() - i);
    const Seconds roundTrip = behind + hop * static_cast<double>(2 * (inFlight - 1));
    const Seconds rest = roundTrip - slowest * static_cast<double>(inFlight);
    const auto waits = static_cast<double>(m - 2 - (m - 2) / inFlight);
    longest = std::max(longest, rest * (waits / static_cast<double>(inFlight - 1)));
  }
  return longest;
}

Seconds zeroBubbleTime(const Pipeline& pipeline, const std::vector<StageSums>& stages,
                       Seconds hop) {
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  const auto p = static_cast<int64_t>(stages.size());
  Seconds forwards, behind;  // of all stages; of those behind, with transfers
  for (const StageSums& stage : stages) {
    forwards += stage.forward;
    behind += stage.backward + hop;
  }
  forwards += hop * static_cast<double>(p - 1);
  const Seconds trip = forwards + behind - hop;  // of a microbatch, to the end and back
  const Seconds first = stages.front().weights;
  Seconds forwardsBefore, before, longest;
  for (size_t r = 0; r < stages.size(); ++r) {
    const Seconds f = stages[r].forward, b = stages[r].backward, w = stages[r].weights;
    const schedule::Lead lead = schedule::leadOf(pipeline.schedule, p, static_cast<int64_t>(r));
    const Seconds waiting = w * std::max(m - 1 - static_cast<double>(lead.backwards), 0.0);
    const Seconds later = f * std::max(m - static_cast<double>(lead.forwards), 0.0);
    behind -= b + hop;
    if (pipeline.postValidation) forwards -= std::exchange(forwardsBefore, Seconds(0));
    longest = std::max(
        {longest, forwardsBefore + (f + b + w) * m, before + (f + b) * m + waiting + first,
         forwards + behind + (b + w) * m + later, trip + b * (m - 1) + waiting + later + first});
    forwardsBefore += f + hop;
    before += f + b + hop * 2;
  }
  return longest;
}

}  // namespace

Seconds StageTimes::total() const { return sum(forward) + sum(backward) + sum(weights); }

Seconds pipelineTime(const Pipeline& pipeline) {
  TRIREME_CHECK(!pipeline.stages.empty());
  const size_t p = pipeline.stages.size(), v = pipeline.stages.front().forward.size();
  const Seconds transfer = p == 1 ? Seconds(0) : pipeline.hop;
  const Seconds hop = pipeline.overlapTransfers ? transfer : Seconds(0);  // beside the rank's work
  std::vector<StageSums> stages;
  stages.reserve(p);
  for (const StageTimes& stage : pipeline.stages) stages.push_back(sumsOf(stage, transfer - hop));
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  if (pipeline.schedule == plan::ScheduleKind::kGpipe) return gpipeTime(stages, m, hop);
  if (plan::splitsBackward(pipeline.schedule)) return zeroBubbleTime(pipeline, stages, hop);
  Seconds total = bottleneckTime(stages, m, static_cast<double>(v), hop) +
                  hop * static_cast<double>(2 * (v * p - 1));
  if (v == 1) total += stallTime(stages, pipeline.numMicrobatches, hop);
  return total;
}

}  // namespace trireme::cost
