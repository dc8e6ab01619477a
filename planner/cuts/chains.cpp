#include "planner/cuts/chains.h"

#include <algorithm>

#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"

namespace trireme::planner {
namespace {

// A chain of some passes of whole microbatches, and some of a chunk.
class Passes {
 public:
  Passes(size_t stages, size_t chunks) {
    chain_.chunks = chunks;
    chain_.passes.resize(stages * kNumPassKinds * chunks);
  }
  void each(size_t rank, PassKind kind, int64_t count) {
    for (size_t c = 0; c < chain_.chunks; ++c)
      chain_.passesAt(rank, kind, c) += static_cast<int32_t>(std::max<int64_t>(count, 0));
  }
  void add(size_t rank, PassKind kind, size_t chunk) { ++chain_.passesAt(rank, kind, chunk); }
  cost::Chain with(Seconds hops) const {
    cost::Chain chain = chain_;
    chain.length = hops;
    return chain;
  }

 private:
  cost::Chain chain_;
};

// What a stage works, behind the first chunks of the stages before and before the last of those
// behind.
cost::Chain workOf(size_t rank, const cost::Pipeline& pipeline, const cost::Hops& hops) {
  const size_t stages = pipeline.stages.size(), chunks = pipeline.stages.front().forward.size();
  Passes passes(stages, chunks);
  for (const PassKind kind : {kForwardPass, kBackwardPass}) {
    passes.each(rank, kind, pipeline.numMicrobatches);
    for (size_t other = 0; other < stages; ++other)
      if (other != rank) passes.add(other, kind, other < rank ? 0 : chunks - 1);
  }
  return passes.with(hops.through(cost::asDouble(static_cast<int64_t>(chunks))) * 2);
}

// The paths of a split backward (cost::zeroBubbleTime).
void addSplit(size_t rank, const cost::Pipeline& pipeline, const cost::Hops& hops,
              std::vector<cost::Chain>& chains) {
  const size_t stages = pipeline.stages.size();
  const int64_t m = pipeline.numMicrobatches;
  const schedule::Lead lead =
      schedule::leadOf(pipeline.schedule, static_cast<int64_t>(stages), static_cast<int64_t>(rank));
  Passes works(stages, 1), goesBack(stages, 1), comesBack(stages, 1);
  for (const PassKind kind : {kForwardPass, kBackwardPass, kWeightsPass}) works.each(rank, kind, m);
  for (const PassKind kind : {kForwardPass, kBackwardPass}) goesBack.each(rank, kind, m);
  goesBack.each(rank, kWeightsPass, m - 1 - lead.backwards);
  goesBack.add(0, kWeightsPass, 0);
  comesBack.each(rank, kForwardPass, m - lead.forwards);
  for (const PassKind kind : {kBackwardPass, kWeightsPass}) comesBack.each(rank, kind, m);
  for (size_t other = 0; other < stages; ++other) {
    if (other < rank) {
      works.add(other, kForwardPass, 0);
      goesBack.add(other, kForwardPass, 0);
      goesBack.add(other, kBackwardPass, 0);
    }
    comesBack.add(other, kForwardPass, 0);
    if (other > rank) comesBack.add(other, kBackwardPass, 0);
  }
  const Seconds before = hops.before(rank);
  chains.push_back(works.with(before));
  chains.push_back(goesBack.with(before * 2));
  chains.push_back(comesBack.with(hops.toLast() * 2 - before));
}

}  // namespace

std::vector<cost::Chain> closedForms(const cost::Pipeline& pipeline) {
  const cost::Hops hops(pipeline);
  std::vector<cost::Chain> chains;
  for (size_t rank = 0; rank < pipeline.stages.size(); ++rank)
    if (plan::splitsBackward(pipeline.schedule))
      addSplit(rank, pipeline, hops, chains);
    else
      chains.push_back(workOf(rank, pipeline, hops));
  return chains;
}

Seconds lengthOf(const cost::Chain& chain, const cost::Pipeline& pipeline) {
  Seconds length = chain.length;
  const Seconds stop = pipeline.stop();
  for (size_t rank = 0; rank < pipeline.stages.size(); ++rank) {
    const cost::StageTimes& times = pipeline.stages[rank];
    const auto add = [&](PassKind kind, const std::vector<Seconds>& ofChunks, Seconds more) {
      for (size_t c = 0; c < ofChunks.size(); ++c)
        length += (ofChunks[c] + more) * static_cast<double>(chain.passesAt(rank, kind, c));
    };
    add(kForwardPass, times.forward, stop);
    add(kBackwardPass, times.backward, stop);
    add(kWeightsPass, times.weights, Seconds(0));
  }
  return length;
}

LinearRow lineOf(const cost::Chain& chain, const LayerTime& ofLayer,
                 const std::vector<double>& layers) {
  LinearRow line{std::vector<double>(layers.size(), 0.0), 0};
  for (size_t i = 0; i < layers.size(); ++i)
    for (const PassKind kind : {kForwardPass, kBackwardPass, kWeightsPass})
      if (const int32_t times = chain.passesAt(i / chain.chunks, kind, i % chain.chunks);
          times != 0)
        line.perLayer[i] += ofLayer(kind, i) * times;
  line.fixed = chain.length.count() - line.at(layers);
  return line;
}

}  // namespace trireme::planner
