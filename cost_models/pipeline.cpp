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

// Every transfer stops the rank: its time becomes the stage's.
std::vector<StageTimes> withTransfers(std::vector<StageTimes> stages, Seconds hop) {
  for (StageTimes& stage : stages) {
    for (Seconds& t : stage.forward) t += hop;
    for (Seconds& t : stage.backward) t += hop;
  }
  return stages;
}

// Equal jobs through a flow shop.
Seconds flowTime(const std::vector<Seconds>& perStage, double jobs, Seconds hop) {
  const Seconds slowest = std::max(*std::max_element(perStage.begin(), perStage.end()), hop);
  return sum(perStage) + slowest * (jobs - 1) + hop * static_cast<double>(perStage.size() - 1);
}

Seconds gpipeTime(const std::vector<StageTimes>& stages, double m, Seconds hop) {
  std::vector<Seconds> forward, backward;
  for (const StageTimes& stage : stages) {
    forward.push_back(sum(stage.forward));
    backward.push_back(sum(stage.backward));
  }
  return flowTime(forward, m, hop) + flowTime(backward, m, hop);
}

// Of an interleaved stage, for transfers longer than its chunks.
Seconds groupStall(const StageTimes& stage, double groups, double p, Seconds hop) {
  const auto v = static_cast<double>(stage.forward.size());
  const Seconds rest = std::max(hop - sum(stage.forward) / v, Seconds(0)) +
                       std::max(hop - sum(stage.backward) / v, Seconds(0));
  return rest * ((groups - 1) * (v - 1) * p);
}

Seconds bottleneckTime(const std::vector<StageTimes>& stages, double m, Seconds hop) {
  const auto p = static_cast<double>(stages.size());
  Seconds after;
  for (const StageTimes& stage : stages) after += stage.forward.back() + stage.backward.back();
  Seconds before, longest;
  for (const StageTimes& stage : stages) {
    after -= stage.forward.back() + stage.backward.back();
    const Seconds stall = stage.forward.size() > 1 ? groupStall(stage, m / p, p, hop) : Seconds(0);
    longest = std::max(longest, stage.total() * m + before + after + stall);
    before += stage.forward.front() + stage.backward.front();
  }
  return longest;
}

Seconds stallTime(const std::vector<StageTimes>& stages, int64_t m, Seconds hop) {
  Seconds slowest;
  for (const StageTimes& stage : stages) slowest = std::max(slowest, stage.total());
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

Seconds zeroBubbleTime(const Pipeline& pipeline, const std::vector<StageTimes>& stages,
                       Seconds hop) {
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  const auto p = static_cast<int64_t>(stages.size());
  Seconds forwards, behind;  // of all stages; of those behind, with transfers
  for (const StageTimes& stage : stages) {
    forwards += stage.forward.front();
    behind += stage.backward.front() + hop;
  }
  forwards += hop * static_cast<double>(p - 1);
  const Seconds first = stages.front().weights.front();
  Seconds forwardsBefore, before, longest;
  for (size_t r = 0; r < stages.size(); ++r) {
    const Seconds f = stages[r].forward.front(), b = stages[r].backward.front();
    const Seconds w = stages[r].weights.front();
    const schedule::Lead lead = schedule::leadOf(pipeline.schedule, p, static_cast<int64_t>(r));
    behind -= b + hop;
    if (pipeline.postValidation) forwards -= std::exchange(forwardsBefore, Seconds(0));
    longest = std::max({longest, forwardsBefore + (f + b + w) * m,
                        before + (f + b) * m +
                            w * std::max(m - 1 - static_cast<double>(lead.backwards), 0.0) + first,
                        forwards + behind + (b + w) * m +
                            f * std::max(m - static_cast<double>(lead.forwards), 0.0)});
    forwardsBefore += f + hop;
    before += f + b + hop * 2;
  }
  return longest;
}

}  // namespace

Seconds StageTimes::total() const { return sum(forward) + sum(backward) + sum(weights); }

Seconds pipelineTime(const Pipeline& pipeline) {
  TRIREME_CHECK(!pipeline.stages.empty());
  const size_t p = pipeline.stages.size();
  Seconds hop = p == 1 ? Seconds(0) : pipeline.hop;
  std::vector<StageTimes> stages = pipeline.stages;
  if (!pipeline.overlapTransfers) {
    stages = withTransfers(std::move(stages), hop);
    hop = Seconds(0);
  }
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  if (pipeline.schedule == plan::ScheduleKind::kGpipe) return gpipeTime(stages, m, hop);
  if (plan::splitsBackward(pipeline.schedule)) return zeroBubbleTime(pipeline, stages, hop);
  const size_t v = stages.front().forward.size();
  Seconds total = bottleneckTime(stages, m, hop) + hop * static_cast<double>(2 * (v * p - 1));
  if (v == 1) total += stallTime(stages, pipeline.numMicrobatches, hop);
  return total;
}

}  // namespace trireme::cost
