// The ways to cut single stages of a plan whose cuts are all looked at. Internal to planner/.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/cuts/cut_player.h"
#include "planner/cuts/exact_cuts.h"

namespace trireme::planner {

struct StageOption {
  std::vector<int64_t> counts;  // of layers, by chunk
  int64_t layers = 0;
  const CutPlayer::Stage* stage = nullptr;
};

// All options of a stage with so many layers or more on a chunk: the least of their times.
struct OptionGroup {
  size_t chunk = 0;
  int64_t layers = 0;
  int64_t fewest = 0;  // layers of one of them
  cost::StageTimes least;
  cost::OnceTimes once;
};

// Of every stage those with which a cut may take less than the question's `enough`, by what a
// pipeline takes at least in which the stage is the busiest (cost::pipelineTime). Where memory
// seems to be tight those that do not fit are left out; of others that is not known yet.
class StageOptions {
 public:
  StageOptions(const ExactQuestion& question, CutPlayer& player);

  // False: there are too many. `player` and `question` must outlive what is found.
  bool find();
  // After find(). False: no cut has all layers.
  bool mayHoldAll() const;

  const std::vector<StageOption>& of(size_t rank) const { return options_[rank]; }  // by layers
  // Of the last stage none.
  const std::vector<OptionGroup>& groupsOf(size_t rank) const { return groups_[rank]; }
  // The stages with as few layers as they may have.
  const cost::Pipeline& least() const { return least_; }
  // Layers of all stages before one.
  int64_t leastBefore(size_t rank) const { return leastBefore_[rank]; }
  int64_t mostBefore(size_t rank) const { return mostBefore_[rank]; }

 private:
  // Whether no cut with so many layers on a stage is fast enough, and whether none with more is.
  struct Excess {
    bool isTooMuch, isMoreToo;
  };

  bool isFirst(size_t rank) const { return rank == 0; }
  bool isLast(size_t rank) const { return rank + 1 == stages_; }
  bool isEven() const { return question_.spread == Spread::kEven; }
  int64_t leastLayers(size_t rank) const;
  const CutPlayer::Stage& leastOf(size_t rank);
  void findOthers();
  double pathOf(size_t rank, const CutPlayer::Stage& stage) const;
  bool isSlow(double path, const cost::OnceTimes& once) const;
  std::vector<std::vector<int64_t>> evenSpreads(size_t rank, int64_t layers) const;
  Excess excessOf(size_t rank, int64_t layers);
  void findMost();
  double waysToSpread(int64_t layers) const;
  bool addOptions(size_t rank, int64_t layers);
  bool isTight(size_t rank, int64_t layers);
  bool spread(size_t rank, size_t chunk, int64_t left);
  int64_t fewestOn(size_t rank, size_t chunk) const;
  bool addOption(size_t rank);
  void limitLayers();
  void findGroups(size_t rank);
  OptionGroup groupOf(size_t rank, size_t chunk, int64_t layers) const;

  const ExactQuestion& question_;
  CutPlayer& player_;
  const size_t stages_;
  const double stop_;  // of a transfer, s, as part of a pass
  cost::Pipeline least_;
  std::vector<double> others_;                     // by stage: of other stages on its path
  std::vector<int64_t> most_;                      // layers, by stage
  std::vector<int64_t> mostBefore_, leastBefore_;  // by stage
  std::vector<std::vector<StageOption>> options_;
  std::vector<std::vector<OptionGroup>> groups_;
  // Of those that are being added.
  struct {
    int64_t fewest = 0, most = 0;  // layers of a chunk
    bool isTight = false;
    std::vector<int64_t> counts;
    std::vector<int64_t> fewestOf, behind;  // layers, at least, of a chunk and of those from it on
  } now_;
};

}  // namespace trireme::planner
