// Stages of a pipeline that nobody computes.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "planner/cuts/cut_player.h"

namespace trireme::planner {

// Every layer of a stage takes equally long; the first chunk and the last one have more beside
// them. A layer of every chunk needs memory of its own.
class MadeUpStages : public StageCosts {
 public:
  // The speed of stages differs by up to twice `unlike`.
  MadeUpStages(std::mt19937& random, size_t stages, size_t chunks, bool takesEmptyEnds,
               double unlike = 0.1)
      : stages_(stages), takesEmptyEnds_(takesEmptyEnds) {
    std::uniform_real_distribution<double> much(0.5, 1), little(1 - unlike, 1 + unlike);
    for (size_t rank = 0; rank < stages; ++rank) {
      speed_.push_back(little(random));
      memory_.emplace_back();
      for (size_t c = 0; c < chunks; ++c) memory_.back().push_back(much(random));
    }
    head_ = much(random);
  }
  Stage stageOf(size_t rank, const std::vector<int64_t>& counts) override {
    Stage stage;
    int64_t layers = 0;
    for (size_t c = 0; c < counts.size(); ++c) {
      layers += counts[c];
      double time = static_cast<double>(counts[c]) * speed_[rank];
      if (rank == 0 && c == 0) time += 0.1;
      if (rank + 1 == stages_ && c + 1 == counts.size()) time += head_;
      stage.times.forward.emplace_back(time);
      stage.times.backward.emplace_back(splitsBackward ? time : 2 * time);
      if (splitsBackward) stage.times.weights.emplace_back(time);
    }
    const bool isEnd = rank == 0 || rank + 1 == stages_;
    stage.once = {Seconds(isEnd ? head_ : 0), Seconds(static_cast<double>(layers) / 10)};
    return stage;
  }
  bool fits(size_t rank, const std::vector<int64_t>& counts) override {
    double need = 0;
    for (size_t c = 0; c < counts.size(); ++c)
      need += memory_[rank][c] * static_cast<double>(counts[c]);
    return need <= most;
  }
  bool takesEmptyEnds() const override { return takesEmptyEnds_; }

  double most = 1e9;  // memory of a stage
  bool splitsBackward = false;

 private:
  const size_t stages_;
  const bool takesEmptyEnds_;
  double head_ = 0;
  std::vector<double> speed_;
  std::vector<std::vector<double>> memory_;  // of a layer, by stage, chunk
};

}  // namespace trireme::planner
