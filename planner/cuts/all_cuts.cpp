#include "planner/cuts/all_cuts.h"

#include <algorithm>
#include <cmath>

#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

using cost::asDouble;

double sum(const std::vector<Seconds>& times) {
  double total = 0;
  for (const Seconds t : times) total += t.count();
  return total;
}

}  // namespace

AllCuts::AllCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                 CutFloor& floor)
    : query_(query),
      blocks_(blocks),
      plan_(plan),
      microbatches_(asDouble(plan.numMicrobatches())),
      layers_(asDouble(query.model.numLayers)),
      forward_(blocks.layer.forward.count()),
      backward_(blocks.layer.backward.count()),
      weights_(blocks.layer.weights.count()) {
  const auto chunks = static_cast<size_t>(plan.virtualStages);
  plan_.layers.assign(static_cast<size_t>(plan.pp), std::vector<plan::LayerRange>(chunks, {0, 1}));
  const cost::Pipeline pipeline = pipelineOf(query, plan_, blocks);
  const double stop = pipeline.stop().count();
  hops_ = cost::Hops(pipeline);

  const std::vector<double> most = floor.mostLayers(plan);
  cost::StageTimes times;
  double before = 0;
  std::vector<double> last;  // of a chunk with one layer
  for (size_t rank = 0; rank < most.size(); ++rank) {
    if (rank < 2 || rank + 1 == most.size()) times = stageTimesOf(plan_, blocks, rank);
    const double all = asDouble(plan.virtualStages);
    stages_.push_back({sum(times.forward) + (stop - forward_) * all,
                       sum(times.backward) + (stop - backward_) * all, before, 0, most[rank]});
    before += (times.forward.front() + times.backward.front()).count() + 2 * stop;
    last.push_back((times.forward.back() + times.backward.back()).count() + 2 * stop);
  }
  for (size_t rank = stages_.size() - 1; rank-- > 0;)
    stages_[rank].after = stages_[rank + 1].after + last[rank + 1];
}

// The shortest time, but for rounding, in which the stages may have all layers, or `limit` if it is
// longer. The ones behind need theirs, so that no more are handed out than they leave.
template <typename LayersIn>
double AllCuts::shortest(const LayersIn& layersIn, double limit) const {
  const double least = asDouble(plan_.virtualStages);
  const auto mayHold = [&](double time) {
    double before = 0, leaves = layers_ - least * asDouble(plan_.pp);
    for (size_t rank = 0; rank < stages_.size(); ++rank) {
      const double held = std::min(layersIn(time, rank, before), stages_[rank].most);
      leaves += least;
      before = std::min(before + std::max(std::floor(held), 0.0), leaves);
      if (before < least * static_cast<double>(rank + 1)) return false;
    }
    return before >= layers_;
  };
  double low = 0, high = layers_ * (forward_ + backward_ + weights_) * microbatches_;
  if (limit < high && !mayHold(limit)) {
    if (mayHold(high)) return limit;
    low = limit;
  } else {
    high = std::min(high, limit);
  }
  for (int i = 0; !mayHold(high); ++i) {
    if (i == 60) return kNoCut.count();  // by memory
    low = high;
    high = 2 * high + 1e-9;
  }
  while (high - low > 1e-7 * high) {
    const double middle = (low + high) / 2;
    (mayHold(middle) ? high : low) = middle;
  }
  return low;
}

double AllCuts::gpipe(double limit) const {
  const double slowest = hops_.slowestToLast().count();
  double total = layers_ * (forward_ + backward_) + 2 * hops_.toLast().count();
  for (const Stage& stage : stages_) total += stage.forward + stage.backward;
  const double more = microbatches_ - 1;
  const double slow = more > 0 ? (limit - total) / more : kNoCut.count();
  const double forward = shortest(
      [&](double time, size_t rank, double) { return (time - stages_[rank].forward) / forward_; },
      slow);
  if (forward == kNoCut.count()) return kNoCut.count();
  const double backward = shortest(
      [&](double time, size_t rank, double) { return (time - stages_[rank].backward) / backward_; },
      slow - forward);
  return total + more * (std::max(forward, slowest) + std::max(backward, slowest));
}

// Of the stalls that of the first stage, whose round trip all stages make: with a longer slowest
// stage it shrinks no faster than (m - 1) of them grow.
double AllCuts::oneForwardOneBackward(double limit) const {
  const double p = asDouble(plan_.pp), m = microbatches_, layer = forward_ + backward_;
  double trip = layers_ * layer + 2 * hops_.toLast().count();
  for (const Stage& stage : stages_) trip += stage.forward + stage.backward;
  const double slowest = shortest(
      [&](double time, size_t rank, double) {
        return (time - stages_[rank].forward - stages_[rank].backward) / layer;
      },
      m > 1 ? (limit - trip) / (m - 1) : kNoCut.count());
  if (slowest == kNoCut.count()) return kNoCut.count();
  const double waits = m < 2 ? 0 : (m - 2 - std::floor((m - 2) / p)) / (p - 1);
  return trip + (m - 1) * slowest + std::max(trip - p * slowest, 0.0) * waits;
}

double AllCuts::interleaved(double limit) const {
  const double m = microbatches_;
  const double hops = 2 * hops_.through(asDouble(plan_.virtualStages)).count();
  const double path = shortest(
      [&](double time, size_t rank, double) {
        const Stage& s = stages_[rank];
        return ((time - s.before - s.after) / m - s.forward - s.backward) / (forward_ + backward_);
      },
      limit - hops);
  return path + hops;
}

double AllCuts::zeroBubble(double limit) const {
  const double m = microbatches_;
  const double pass = forward_ + backward_;
  double forwards = layers_ * forward_, backwards = layers_ * backward_;
  for (const Stage& stage : stages_) {
    forwards += stage.forward;
    backwards += stage.backward;
  }
  std::vector<double> fixedForward = {0}, fixedBackward = {0};  // of the stages before
  for (const Stage& stage : stages_) {
    fixedForward.push_back(fixedForward.back() + stage.forward);
    fixedBackward.push_back(fixedBackward.back() + stage.backward);
  }
  // Of each path of a stage what it takes without layers, and for each.
  struct Path {
    double fixed, perLayer;
  };
  struct Paths {
    Path works, goesBack, comesBack, between;
  };
  std::vector<Paths> paths;
  const double way = hops_.toLast().count();  // of transfers, to the last stage
  const double trip = forwards + backwards + 2 * way + weights_;
  for (size_t rank = 0; rank < stages_.size(); ++rank) {
    const Stage& s = stages_[rank];
    const double before = hops_.before(rank).count();
    const schedule::Lead lead =
        schedule::leadOf(plan_.schedule, plan_.pp, static_cast<int64_t>(rank));
    const double waiting = std::max(m - 1 - asDouble(lead.backwards), 0.0);
    const double behind = std::max(m - asDouble(lead.forwards), 0.0);
    const double own = fixedForward[rank] + m * (s.forward + s.backward);
    // The last one without the backwards of this stage and of those before.
    paths.push_back(
        {{own + before, m * (pass + weights_)},
         {own + fixedBackward[rank] + 2 * before + weights_, m * pass + waiting * weights_},
         {forwards + (backwards - fixedBackward[rank] - s.backward) + (2 * way - before) +
              m * s.backward + behind * s.forward,
          (m - 1) * backward_ + m * weights_ + behind * forward_},
         {trip + (m - 1) * s.backward + behind * s.forward,
          (m - 1) * backward_ + waiting * weights_ + behind * forward_}});
  }
  const auto layersIn = [&](double time, size_t rank, double before) {
    const auto within = [&](const Path& path, double perLayerBefore) {
      const double left = time - path.fixed - before * perLayerBefore;
      if (path.perLayer > 0) return left / path.perLayer;
      return left < 0 ? 0.0 : layers_;
    };
    const Paths& of = paths[rank];
    return std::min({within(of.works, forward_), within(of.goesBack, pass),
                     within(of.comesBack, -backward_), within(of.between, 0)});
  };
  return shortest(layersIn, limit);
}

double AllCuts::flush(double limit) const {
  if (plan::splitsBackward(plan_.schedule)) return zeroBubble(limit);
  if (plan_.schedule == plan::ScheduleKind::kGpipe) return gpipe(limit);
  return plan_.virtualStages == 1 ? oneForwardOneBackward(limit) : interleaved(limit);
}

// Some stage has ceil(L / p) layers at least, the first and the last one on every chunk.
cost::OnceTimes AllCuts::once() const {
  const StepLinks links = stepLinksOf(query_, plan_);
  plan::Plan plan = plan_;
  const size_t last = stages_.size() - 1;
  cost::OnceTimes ends, fullest{kNoCut, kNoCut};
  std::vector<size_t> ranks = {0, last};  // inner ones are alike
  if (last > 1) ranks.push_back(1);
  for (const size_t rank : ranks) {
    ends = longest(ends, leastOnceOf(query_, plan_, blocks_, rank, links));
    plan.layers[rank].front().count =
        (query_.model.numLayers + plan.pp - 1) / plan.pp - plan.virtualStages + 1;
    fullest = cost::shortest(fullest, leastOnceOf(query_, plan, blocks_, rank, links));
  }
  return longest(ends, fullest);
}

Seconds AllCuts::bound(Seconds limit) const {
  constexpr double kBeyond = 1 + 1e-6;  // so that rounding does not bring it back to the limit
  const Seconds after = once().total();
  return (Seconds(flush((limit * kBeyond - after).count())) + after) * kRounding;
}

}  // namespace trireme::planner
