// Layers moved between chunks, judged by critical paths of cuts that were played. Internal to
// planner/.
#pragma once
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "cost_models/once_times.h"
#include "planner/cuts/linear_chunks.h"

namespace trireme::planner {

// What stages do once per step, of which the longest count, when a layer goes from one to another.
class OnceWithMoves {
 public:
  // Of every stage as it is; and what a layer more or less is about.
  OnceWithMoves(const std::vector<cost::OnceTimes>& stages, cost::OnceTimes ofLayer);
  double with(size_t from, size_t to) const;  // s
  double least() const;                       // s, of all moves

 private:
  struct Part {
    std::vector<double> ofStage;
    double ofLayer = 0;
    std::vector<size_t> longest;  // three stages: one of them is neither of two
    double with(size_t from, size_t to) const;
  };
  static Part partOf(std::vector<double> ofStage, double ofLayer);
  std::array<Part, 2> parts_;
};

// The order of tasks does not depend on how long they take, so that no cut takes less than any
// chain that was the longest of another (cut_relaxation.h), as far as a layer takes as long on
// every chunk of a kind: what a move does to the chains that are known says, at some products each,
// which of thousands of moves are worth a play.
class LayerMoves {
 public:
  // Of one layer between chunks, counted by stages.
  struct Move {
    size_t from = 0, to = 0;
    double once = 0, flush = 0;  // s, with it; the flush at least, as far as is known
    double time() const { return once + flush; }
  };

  void addChain(LinearRow chain) { chains_.push_back(std::move(chain)); }
  bool knowsChains() const { return !chains_.empty(); }

  // Those from `layers` that may take less than `enough`, of many the likeliest, in no order.
  // Requires a chain.
  std::vector<Move> from(const std::vector<double>& layers, const std::vector<size_t>& givers,
                         size_t chunksPerStage, const OnceWithMoves& once, double enough) const;
  // Those of `moves` from `layers` that may by the latest chain as well.
  void lookAgain(const std::vector<double>& layers, double enough, std::vector<Move>& moves) const;

 private:
  std::vector<LinearRow> chains_;
};

}  // namespace trireme::planner
