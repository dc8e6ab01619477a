// A question asked at many points: every combination of hardware, number of devices, network,
// batch and sequence length. Each point is answered by searchPlan, as `trireme plan` answers it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"
#include "planner/search/search.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// A cluster under the name that the user chose it by.
struct Hardware {
  std::string name;
  spec::ClusterSpec cluster;
  spec::Precision precision = spec::Precision::kBf16;  // in which it trains
};

// The values to combine. An empty list: as the base query and the hardware have it.
struct SweepAxes {
  std::vector<int64_t> gpus;
  std::vector<BytesPerSecond> interNode;
  std::vector<int64_t> batch;
  std::vector<int64_t> sequence;
  std::vector<int64_t> minusNodes;
};

struct SweepPoint {
  size_t hardware = 0;       // index
  int64_t gpus = 0;          // before any node is taken away
  BytesPerSecond interNode;  // line rate of a device between nodes; 0: there is no network
  int64_t batch = 0;         // sequences
  int64_t sequence = 0;      // tokens
  int64_t minusNodes = 0;    // nodes that are missing
  bool operator==(const SweepPoint&) const = default;
};

struct Sweep {
  Query base;  // cluster, precision, batch, sequence length, pins.gpus: the point's
  std::vector<Hardware> hardware;
  SweepAxes axes;
};

// What the planner says of a point, without the plan itself: as much as a file can keep.
struct PointAnswer {
  std::string reason;  // why there is no plan; empty: there is one
  std::string plan;    // summary()
  std::string shape;   // summary() without replicas: what stays the same along a scaling curve
  int64_t gpusUsed = 0;
  int64_t nodesUsed = 0;  // nodesUsed() of the plan, in nodes of the hardware
  Seconds step;
  double tokensPerSecond = 0;
  double modelFlopsUtilisation = 0;
  cost::Breakdown breakdown;  // adds up to the step
  Bytes memory;               // of the fullest rank
  bool memoryTight = false;   // isTight()
  bool ok() const { return reason.empty(); }
};

// Devices that fail and are replaced together: a host's (ClusterSpec::devicesPerHost) or, where the
// cluster does not say and no inner tier is as small as a host, those of a block of the innermost
// tier. All devices, if that is the only tier; more of them are more such nodes.
int64_t devicesPerNode(const spec::ClusterSpec& cluster);

// Nodes that have a rank of the plan. A program that wants as many ranks on every host spreads some
// plans over more of them than they fill (Plan::devicesPerHost), as trireme export launches them.
//
//   5 ranks on nodes of 4: 4 + 1 on two; of such a program one on each of five
int64_t nodesUsed(const plan::Plan& plan, const spec::ClusterSpec& cluster);

// Line rate of a device in the tier that joins whole nodes: the innermost one that does, but of
// several never the first, which racks of hosts may share. 0: the only tier is within a node.
BytesPerSecond interNodeOf(const spec::ClusterSpec& cluster);

// The cluster with another line rate per device in that tier; what was measured there and what a
// pair has grow with it, and so do the tiers above, so that each carries the same share of what is
// below it. kInvalidArgument: the only tier is within a node, so nothing is between nodes.
Result<spec::ClusterSpec> withInterNode(spec::ClusterSpec cluster, BytesPerSecond rate);

// Of the point, without those of missing nodes; 0: none is left.
int64_t presentDevices(const Sweep& sweep, const SweepPoint& point);

// All combinations. Devices vary fastest, after those missing nodes: a scaling curve is
// consecutive.
std::vector<SweepPoint> pointsOf(const Sweep& sweep);

// What `trireme plan` would be asked. kInvalidArgument: no such cluster (more devices than it has,
// no whole number of nodes, no node left); the message says what is near.
Result<Query> queryAt(const Sweep& sweep, const SweepPoint& point);

// Answers one point after another, each as searchPlan would on its own, but sooner where they are
// near each other:
//
//   limit    the time that the choices of the last answer would take here is a limit of the search
//            (Query::slowest); if no plan of the space is as fast, the point is searched without.
//            As much is proved; of cuts beyond the space fewer may be met
//   blocks   of a stack with a description, layers cost the same at all points of the same hardware
//            and sequence length, but for the links among cp ranks that are not within a node, as
//            long as its tp ranks are
class PointPlanner {
 public:
  explicit PointPlanner(const Sweep& sweep) : sweep_(sweep) {}
  // What was answered before is no neighbour of what follows.
  void forgetLast() { near_.reset(); }
  // Whatever keeps the point from having a plan is the answer's reason.
  PointAnswer answer(const SweepPoint& point);

 private:
  // Hardware, sequence; then what plans of a group share.
  using BlocksKey = std::tuple<size_t, int64_t, int64_t, int64_t, int64_t, plan::Recompute, bool>;
  using HereKey = std::pair<BlocksKey, std::vector<int64_t>>;  // and innerBlocks()
  CostFunctions costsOf(const Query& query, const SweepPoint& point);

  const Sweep& sweep_;
  std::optional<plan::Plan> near_;
  std::map<BlocksKey, SharedBlocks> blocks_;  // of any point
};

// Answers `points` on `numThreads` threads at least 1. `onAnswer` hears each as it comes, in any
// order, one at a time; it returns whether to go on.
void answerPoints(const Sweep& sweep, const std::vector<SweepPoint>& points, int numThreads,
                  const std::function<bool(size_t, const PointAnswer&)>& onAnswer);

}  // namespace trireme::planner
