// Plays cuts of a plan's layers and keeps the fastest. Internal to planner/.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cost_models/pipeline.h"
#include "cost_models/play.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/layer_moves.h"

namespace trireme::planner {

using Counts = std::vector<std::vector<int64_t>>;  // of layers, by stage and chunk

// What the stages of one plan cost, each with layers of its own, by chunk.
class StageCosts {
 public:
  struct Stage {
    cost::StageTimes times;
    cost::OnceTimes once;
  };
  virtual ~StageCosts() = default;
  // Stages of a kind take equally long with the same layers; what they need in memory may differ.
  virtual size_t kindOf(size_t rank) const { return rank; }
  virtual Stage stageOf(size_t rank, const std::vector<int64_t>& counts) = 0;
  virtual bool fits(size_t rank, const std::vector<int64_t>& counts) = 0;
  // Whether the first chunk, with the embedding, and the last, with the head, may have no layer.
  virtual bool takesEmptyEnds() const = 0;
};

// A step is (cost::flushTime + the longest `once` (OnceTimes)) factor. What is played is limited by
// passes of chunks, what is looked at and found too slow by the closed form is not.
class CutPlayer {
 public:
  // `pipeline` but for its stages. `costs` and `flush` must outlive the player. Cuts that take more
  // than `limit` count as slow.
  CutPlayer(StageCosts& costs, cost::FlushPlayer& flush, cost::Pipeline pipeline, double factor,
            std::optional<Seconds> limit, int64_t mostPasses);
  ~CutPlayer() { flush_.trim(); }

  bool mayPlay() const { return numPasses_ < mostPasses_; }
  int64_t numPasses() const { return numPasses_; }
  // From now on so many passes, and cuts that take no more than `limit`.
  void allow(int64_t passes, Seconds limit) {
    mostPasses_ = numPasses_ + passes;
    limit_ = limit;
  }
  // What counts so far: nothing slower is of interest.
  Seconds limit() const { return best_ ? std::min(limit_, best_->step) : limit_; }
  const std::optional<CutSearch::Cut>& best() const { return best_; }
  // None from now on.
  std::optional<CutSearch::Cut> takeBest() { return std::exchange(best_, std::nullopt); }
  double factor() const { return factor_; }
  bool takesEmptyEnds() const { return costs_.takesEmptyEnds(); }

  // A stage, and its part of the closed form with transfers that stop it: with paths through the
  // first and the last chunks, or of a split backward the first of its three, through the forwards.
  struct Stage {
    cost::StageTimes times;
    double all = 0, first = 0, last = 0;
    cost::OnceTimes once;
  };
  const Stage& stageOf(size_t rank, const std::vector<int64_t>& counts);
  bool fits(size_t rank, const std::vector<int64_t>& counts);
  bool fits(const Counts& counts);

  // Whether it is the best so far. Does nothing where a stage does not fit.
  bool play(const Counts& counts);
  // Of a cut, whether it fits or not.
  Seconds timeOf(const Counts& counts);
  // Of the tasks of the stages from `first` on.
  std::shared_ptr<const cost::TaskOrder> orderOf(const cost::Pipeline& pipeline, size_t first) {
    return flush_.orderOf(pipeline, first);
  }

  // Whole layers near those of every chunk, by stages, `left` in all, that fit: rounded down, and
  // then one more where the most is missing, as far as ranks have memory. None: they have too
  // little.
  std::optional<Counts> nearest(const std::vector<double>& layers, int64_t left, int64_t chunks);

  // Moves layers, one at a time, as long as the best becomes faster by it. Of the moves that may
  // help by the critical paths of all cuts played (LayerMoves) the likeliest are tried first, at
  // most so many in vain.
  void descend(size_t mostInVain);

 private:
  struct Chunk {
    size_t rank = 0, chunk = 0;
  };

  int64_t leastOf(const Chunk& at, const Counts& counts) const;
  bool mayGive(const Chunk& at, const Counts& counts) const {
    return counts[at.rank][at.chunk] > leastOf(at, counts);
  }
  using LayerTimes = std::array<double, kNumPassKinds>;  // s

  void addChains(const cost::Chain& played, const Counts& counts);
  void learnLayer(const Counts& counts);
  std::vector<LayerMoves::Move> movesFrom(const Counts& counts, double enough);
  void addTangent();
  bool stepDown(size_t mostInVain);
  cost::OnceTimes put(const Counts& counts);  // into pipeline_; the longest `once`

  StageCosts& costs_;
  cost::Pipeline pipeline_;
  cost::FlushPlayer& flush_;
  const double factor_;
  Seconds limit_;
  int64_t mostPasses_;
  // What is known of a stage's layers, and what was asked for last: cuts differ by a layer, mostly.
  using Known = std::map<std::vector<int64_t>, Stage>;
  struct Fitting {
    std::map<std::vector<int64_t>, bool> known;
    const std::pair<const std::vector<int64_t>, bool>* latest = nullptr;
  };
  std::deque<Known> known_;                       // of every kind; none moves
  std::vector<const Known::value_type*> latest_;  // of every rank
  std::deque<Fitting> fitting_;                   // of every rank
  std::vector<const Stage*> put_;                 // into pipeline_
  std::map<Counts, Seconds> played_;
  LayerMoves moves_;
  LayerTimes ofFirst_{}, ofLayer_{}, ofLast_{};  // one more on the first chunk, most, the last one
  cost::OnceTimes onceOfLayer_;
  std::optional<CutSearch::Cut> best_;
  Counts counts_;  // of the best
  int64_t numPasses_ = 0;
};

// Of every stage the layers of its chunks.
Counts countsOf(const Ranges& ranges);

}  // namespace trireme::planner
