#include "planner/cuts/layer_moves.h"

#include <algorithm>
#include <numeric>

namespace trireme::planner {
namespace {

// Moves that are told at most: some are tried, and those that do not fit are many.
constexpr size_t kMostMoves = 256;

bool isShorter(const LayerMoves::Move& a, const LayerMoves::Move& b) { return a.time() < b.time(); }

}  // namespace

OnceWithMoves::Part OnceWithMoves::partOf(std::vector<double> ofStage, double ofLayer) {
  std::vector<size_t> longest(ofStage.size());
  std::iota(longest.begin(), longest.end(), size_t{0});
  const auto numLongest = std::min<size_t>(longest.size(), 3);
  std::partial_sort(longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(numLongest),
                    longest.end(), [&](size_t a, size_t b) { return ofStage[a] > ofStage[b]; });
  longest.resize(numLongest);
  return {std::move(ofStage), ofLayer, std::move(longest)};
}

OnceWithMoves::OnceWithMoves(const std::vector<cost::OnceTimes>& stages, cost::OnceTimes ofLayer) {
  std::vector<double> reducing, updating;
  for (const cost::OnceTimes& stage : stages) {
    reducing.push_back(stage.reducing.count());
    updating.push_back(stage.updating.count());
  }
  parts_ = {partOf(std::move(reducing), ofLayer.reducing.count()),
            partOf(std::move(updating), ofLayer.updating.count())};
}

double OnceWithMoves::Part::with(size_t from, size_t to) const {
  if (from == to) return ofStage[longest.front()];
  double most = std::max(ofStage[from] - ofLayer, ofStage[to] + ofLayer);
  for (const size_t stage : longest)
    if (stage != from && stage != to) return std::max(most, ofStage[stage]);
  return most;
}

double OnceWithMoves::with(size_t from, size_t to) const {
  return parts_[0].with(from, to) + parts_[1].with(from, to);
}

double OnceWithMoves::least() const {
  double sum = 0;
  for (const Part& part : parts_) sum += part.ofStage[part.longest.front()] - part.ofLayer;
  return sum;
}

std::vector<LayerMoves::Move> LayerMoves::from(const std::vector<double>& layers,
                                               const std::vector<size_t>& givers,
                                               size_t chunksPerStage, const OnceWithMoves& once,
                                               double enough) const {
  struct Length {
    double now;
    const double* ofLayer;
  };
  std::vector<Length> chains;
  for (const LinearRow& chain : chains_)
    chains.push_back({chain.at(layers), chain.perLayer.data()});
  const auto longestOfAll = std::max_element(
      chains.begin(), chains.end(), [](const auto& a, const auto& b) { return a.now < b.now; });
  std::iter_swap(chains.begin(), longestOfAll);
  // By how often the longest chain comes to them: behind the first that makes it too long all do.
  const Length& longest = chains.front();
  std::vector<size_t> takers(layers.size());
  std::iota(takers.begin(), takers.end(), size_t{0});
  std::stable_sort(takers.begin(), takers.end(),
                   [&](size_t a, size_t b) { return longest.ofLayer[a] < longest.ofLayer[b]; });
  double enoughOfFlush = enough - once.least();
  std::vector<Move> moves;  // a heap, when there are as many as are told
  for (const size_t giver : givers)
    for (const size_t taker : takers) {
      double flush = longest.now + longest.ofLayer[taker] - longest.ofLayer[giver];
      if (flush >= enoughOfFlush) break;
      if (taker == giver) continue;
      for (size_t k = 1; k < chains.size() && flush < enoughOfFlush; ++k) {
        const Length& chain = chains[k];
        flush = std::max(flush, chain.now + chain.ofLayer[taker] - chain.ofLayer[giver]);
        // What rules out one move does so to many.
        if (flush >= enoughOfFlush) std::swap(chains[k], chains[(k + 1) / 2]);
      }
      if (flush >= enoughOfFlush) continue;
      const Move move{giver, taker, once.with(giver / chunksPerStage, taker / chunksPerStage),
                      flush};
      if (move.time() >= enough) continue;
      moves.push_back(move);
      if (moves.size() < kMostMoves) continue;
      if (moves.size() == kMostMoves) {
        std::make_heap(moves.begin(), moves.end(), isShorter);
      } else {
        std::push_heap(moves.begin(), moves.end(), isShorter);
        std::pop_heap(moves.begin(), moves.end(), isShorter);
        moves.pop_back();
      }
      enough = moves.front().time();
      enoughOfFlush = enough - once.least();
    }
  return moves;
}

void LayerMoves::lookAgain(const std::vector<double>& layers, double enough,
                           std::vector<Move>& moves) const {
  const LinearRow& latest = chains_.back();
  const double now = latest.at(layers);
  for (Move& move : moves)
    move.flush = std::max(move.flush, now + latest.perLayer[move.to] - latest.perLayer[move.from]);
  moves.erase(std::remove_if(moves.begin(), moves.end(),
                             [&](const Move& move) { return move.time() >= enough; }),
              moves.end());
}

}  // namespace trireme::planner
