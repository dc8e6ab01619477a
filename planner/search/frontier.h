// The open nodes of the search and their bounds. Internal to planner/.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/search/work.h"
#include "planner/space/block_costs.h"
#include "planner/space/space.h"

namespace trireme::planner {

// (tp, pp, cp, dp): what runners-up differ in.
using Degrees = std::tuple<int64_t, int64_t, int64_t, int64_t>;
inline Degrees degreesOf(const Group& g) { return {g.tp, g.pp, g.cp, g.dp}; }
inline Degrees degreesOf(const plan::Plan& p) { return {p.tp, p.pp, p.cp, p.dp()}; }

// An arrangement is a plan whose layers are not cut yet. Where some layers may be recomputed alone
// it stands for all numbers of them, bounded for those from its own on, until it is split into
// uncut plans.
enum class NodeKind : uint8_t {
  kGroup,
  kLikenedGroup,  // bounded by the blocks of a plainer one
  kProbedGroup,
  kArrangement,  // bounded whatever its cut
  kBoundedArrangement,
  kUncut,
  kCandidate
};

struct Node {
  Seconds bound;
  NodeKind kind = NodeKind::kGroup;
  Group group;
  // From kProbedGroup on; kCandidate of own programs alone, unless its cut is pinned.
  std::shared_ptr<const BlockCosts> blocks;
  std::shared_ptr<const plan::Plan> plan;  // from kArrangement on
};

// Nodes by increasing bound; of equal bounds in the order in which they came.
class Frontier {
 public:
  void push(Node node) {
    heap_.emplace(node.bound.count(), nodes_.size());
    ++open_[degreesOf(node.group)];
    ++numOpen_[static_cast<size_t>(node.kind)];
    nodes_.push_back(std::move(node));
  }
  Node pop() {
    Node node = std::move(nodes_[heap_.top().second]);
    heap_.pop();
    --open_[degreesOf(node.group)];
    --numOpen_[static_cast<size_t>(node.kind)];
    return node;
  }
  bool empty() const { return heap_.empty(); }
  Seconds lowestBound() const { return Seconds(heap_.top().first); }
  int64_t numOpen(NodeKind kind) const { return numOpen_[static_cast<size_t>(kind)]; }
  bool isOpen(const Degrees& degrees) const {
    const auto found = open_.find(degrees);
    return found != open_.end() && found->second > 0;
  }

 private:
  using Place = std::pair<double, size_t>;  // bound, node
  std::priority_queue<Place, std::vector<Place>, std::greater<>> heap_;
  std::vector<Node> nodes_;
  std::map<Degrees, int64_t> open_;
  int64_t numOpen_[7] = {};
};

// Of W, w; m microbatches, p stages, l >= p layers, e = W - l w of embedding and head:
//   time >= m max(W / p, ceil(l / p) w) + max((p - 3) w + min(e, w), 0)
// Some stage r does at least W / p per microbatch, some has ceil(l / p) layers: the busiest, B,
// does both.
//   virtual stages: the path that turns at r takes m B, before it the first chunks of the stages
//     in front and after it the last chunks of those behind. Each has a layer at least, but the
//     first chunk of stage 0, with the embedding, and the last one of stage p - 1, with the head.
//     If r is neither of the two, these take min(embedding, w) + min(head, w) >= min(e, w) besides
//     the p - 3 others; if it is one of them, p - 2 others take a layer each.
//   backward split: m B, for gradients of weights fill what else is waited for. And a stage begins
//   when
//     the forwards before it are done, so that in a time T it may have n layers with
//     m w n <= T - f sum_{i<r} n_i, f the forward of a layer: at most T / (m w) (1 - q)^r, q = f /
//     (m w), if all stages before have as many as they may, which is the most in all. All l layers
//     need T >= l f / (1 - (1 - q)^p). And the first stage with a layer begins its backwards when a
//     microbatch has been to the end and back: T >= l f + (l - 1) b + m (b + g), with b and g the
//     two parts of a layer's backward. Neither with post-validation. And a microbatch goes to the
//     end and back, l (f + b), and the busiest stage does leastBetween() for each of its layers.
//   otherwise: W + (m - 1) B, and W - b >= (p - 1) w for b, what is said above of B: it is
//     (1 - 1 / p) W where b = W / p >= w, else at least (l - ceil(l / p)) w.
Seconds groupBound(const Query& query, const Group& group, const Work& work);
// Of every group with the tp, cp, microbatch... of `shape` and pp x dp <= mostRanks:
//   time >= (batch / microbatch) W / mostRanks
Seconds shapeBound(const Query& query, const Group& shape, const Work& work, int64_t mostRanks);

}  // namespace trireme::planner
