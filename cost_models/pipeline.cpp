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
                 const Hops& hops) {
  Seconds all, slowest = hops.slowestToLast();
  for (const StageSums& stage : stages) {
    all += stage.*pass;
    slowest = std::max(slowest, stage.*pass);
  }
  return all + slowest * (jobs - 1) + hops.toLast();
}

Seconds gpipeTime(const std::vector<StageSums>& stages, double m, const Hops& hops) {
  return flowTime(stages, &StageSums::forward, m, hops) +
         flowTime(stages, &StageSums::backward, m, hops);
}

// Of an interleaved stage of v chunks, for transfers longer than its chunks.
Seconds groupStall(const StageSums& stage, double groups, double v, double p, Seconds around) {
  const Seconds rest = std::max(around - stage.forward * (p / v), Seconds(0)) +
                       std::max(around - stage.backward * (p / v), Seconds(0));
  return rest * ((groups - 1) * (v - 1));
}

Seconds bottleneckTime(const std::vector<StageSums>& stages, double m, double v, Seconds around) {
  const auto p = static_cast<double>(stages.size());
  Seconds after;
  for (const StageSums& stage : stages) after += stage.last;
  Seconds before, longest;
  for (const StageSums& stage : stages) {
    after -= stage.last;
    const Seconds stall = v > 1 ? groupStall(stage, m / p, v, p, around) : Seconds(0);
    longest = std::max(longest, stage.total() * m + before + after + stall);
    before += stage.first;
  }
  return longest;
}

Seconds stallTime(const std::vector<StageSums>& stages, int64_t m, const Hops& hops) {
  Seconds slowest;
  for (const StageSums& stage : stages) slowest = std::max(slowest, stage.total());
  Seconds behind = stages.back().total(), longest;
  if (m < 2) return longest;
  for (size_t i = stages.size() - 1; i-- > 0;) {
    behind += stages[i].total();
    const auto inFlight = static_cast<int64_t>(stages.size() - i);
    const Seconds roundTrip = behind + (hops.toLast() - hops.before(i)) * 2;
    const Seconds rest = roundTrip - slowest * static_cast<double>(inFlight);
    const auto waits = static_cast<double>(m - 2 - (m - 2) / inFlight);
    longest = std::max(longest, rest * (waits / static_cast<double>(inFlight - 1)));
  }
  return longest;
}

Seconds zeroBubbleTime(const Pipeline& pipeline, const std::vector<StageSums>& stages,
                       const Hops& hops) {
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  const auto p = static_cast<int64_t>(stages.size());
  Seconds forwards = hops.toLast(), behind = hops.toLast();  // of all stages; of those behind
  for (const StageSums& stage : stages) {
    forwards += stage.forward;
    behind += stage.backward;
  }
  const Seconds trip = forwards + behind;  // of a microbatch, to the end and back
  const Seconds first = stages.front().weights;
  Seconds forwardsBefore, before, longest;
  for (size_t r = 0; r < stages.size(); ++r) {
    const Seconds f = stages[r].forward, b = stages[r].backward, w = stages[r].weights;
    const schedule::Lead lead = schedule::leadOf(pipeline.schedule, p, static_cast<int64_t>(r));
    const Seconds waiting = w * std::max(m - 1 - static_cast<double>(lead.backwards), 0.0);
    const Seconds later = f * std::max(m - static_cast<double>(lead.forwards), 0.0);
    behind -= b;
    if (pipeline.postValidation) forwards -= std::exchange(forwardsBefore, Seconds(0));
    longest = std::max(
        {longest, forwardsBefore + (f + b + w) * m, before + (f + b) * m + waiting + first,
         forwards + behind + (b + w) * m + later, trip + b * (m - 1) + waiting + later + first});
    if (r + 1 == stages.size()) break;
    const Seconds hop = hops.behind(r);
    behind -= hop;
    forwardsBefore += f + hop;
    before += f + b + hop * 2;
  }
  return longest;
}

// The slowest link, with what comes before its first message and after the last one.
Seconds linkTime(const Pipeline& pipeline, const Hops& hops) {
  const size_t p = pipeline.stages.size(), v = pipeline.stages.front().forward.size();
  const auto m = static_cast<double>(pipeline.numMicrobatches), chunks = static_cast<double>(v);
  Seconds backwards = hops.through(chunks), before, after, longest;
  for (const StageTimes& stage : pipeline.stages) {
    backwards += sum(stage.backward);
    after += stage.forward.back();
  }
  for (size_t r = 0; r + 1 < p; ++r) {
    before += pipeline.stages[r].forward.front();
    after -= pipeline.stages[r].forward.back();
    const Seconds others = hops.toLast() - hops.behind(r);
    longest = std::max(longest, before + after + others + hops.behind(r) * (m * chunks));
  }
  if (v > 1) {  // from the last stage to the first
    Seconds twice = hops.toLast() * 2;
    for (const StageTimes& stage : pipeline.stages)
      twice += stage.forward.front() + stage.forward.back();
    longest = std::max(longest, twice + hops.behind(p - 1) * (m * (chunks - 1)));
  }
  if (!pipeline.stages.front().weights.empty())
    backwards += pipeline.stages.front().weights.front();
  return longest + backwards;
}

Seconds timeOfStages(const Pipeline& pipeline, const Hops& hops) {
  const size_t v = pipeline.stages.front().forward.size();
  const Seconds stop = pipeline.stop();
  std::vector<StageSums> stages;
  stages.reserve(pipeline.stages.size());
  for (const StageTimes& stage : pipeline.stages) stages.push_back(sumsOf(stage, stop));
  const auto m = static_cast<double>(pipeline.numMicrobatches);
  if (pipeline.schedule == plan::ScheduleKind::kGpipe) return gpipeTime(stages, m, hops);
  if (plan::splitsBackward(pipeline.schedule)) return zeroBubbleTime(pipeline, stages, hops);
  Seconds total = bottleneckTime(stages, m, static_cast<double>(v), hops.around()) +
                  hops.through(static_cast<double>(v)) * 2;
  if (v == 1) total += stallTime(stages, pipeline.numMicrobatches, hops);
  return total;
}

}  // namespace

Seconds StageTimes::total() const { return sum(forward) + sum(backward) + sum(weights); }

Seconds StageTimes::shortest() const {
  Seconds shortest = forward.front();
  for (const auto* passes : {&forward, &backward, &weights})
    for (const Seconds time : *passes) shortest = std::min(shortest, time);
  return shortest;
}

Seconds Pipeline::stop() const {
  if (overlapTransfers || hops.size() < 2) return {};
  return *std::max_element(hops.begin(), hops.end());
}

Hops::Hops(const Pipeline& pipeline) {
  if (!pipeline.overlapTransfers || pipeline.hops.size() < 2) return;
  hops_ = pipeline.hops;
  before_.resize(hops_.size());
  for (size_t r = 1; r < hops_.size(); ++r) before_[r] = before_[r - 1] + hops_[r - 1];
}

Seconds Hops::slowestToLast() const {
  if (hops_.empty()) return {};
  return *std::max_element(hops_.begin(), hops_.end() - 1);
}

bool Hops::areEven() const {
  return std::all_of(hops_.begin(), hops_.end(), [&](Seconds hop) { return hop == hops_.front(); });
}

Seconds pipelineTime(const Pipeline& pipeline) {
  TRIREME_CHECK(!pipeline.stages.empty());
  const Hops hops(pipeline);
  const Seconds time = timeOfStages(pipeline, hops);
  return hops.around() > Seconds(0) ? std::max(time, linkTime(pipeline, hops)) : time;
}

}  // namespace trireme::cost
