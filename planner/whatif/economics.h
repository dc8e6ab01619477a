// How long a whole training takes and what it costs, from the time of a step.
//
//   steps    tokens / (batch x sequence length), rounded up
//   busy     steps x time of a step
//   goodput  of the time while all nodes are there: daly.h, M = mean time between failures of a
//            device / devices used; R = restart + loading, which takes as long as saving
//   wall     busy / goodput / availability
//   cost     price x (devices + devices of the spare nodes that are bought) x wall
//   energy   power x devices used x wall; those that wait draw none
//
// Devices are all that were asked for, also those that the plan leaves idle: they are paid for.
// Whole nodes among those are the first spares, if the plan has no rank on them.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/base/units.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"
#include "ir/spec/training_spec.h"
#include "planner/whatif/daly.h"

namespace trireme::planner {

struct FailureModel {
  Seconds deviceMeanBetween;           // of one device, with its share of the node and the network
  BytesPerSecond checkpointBandwidth;  // of the storage, all ranks together
  Seconds restart;                     // from the failure until the checkpoint begins to load
  std::optional<Seconds> repair;       // of a node; absent: one is always at hand
  std::optional<int64_t> spares;       // nodes that wait; absent: as many as make it cheapest
};

struct Scenario {
  double tokens = 0;            // 0: nothing is asked but the step
  std::optional<double> price;  // USD per device and hour
  std::optional<Watts> power;   // of one device; absent: of the device's specification
  std::optional<FailureModel> failures;
};

// What the economics need of a point.
struct Training {
  Seconds step;
  int64_t tokensPerStep = 0;
  int64_t gpus = 0;       // asked for, at least those used
  int64_t used = 0;       // by the plan, at least 1
  int64_t nodesUsed = 1;  // that those are on: at least used / perNode
  int64_t perNode = 1;    // devices of a node
  Bytes checkpoint;       // checkpointBytes()
  Watts power;            // of the device's specification; 0: not known
};

struct Goodput {
  FailureRate rate;         // of the job
  Seconds young, interval;  // Young's and Daly's; Daly's is used
  double goodput = 1;       // computing over wall time while all nodes are there
  int64_t spares = 0;       // nodes that wait, with those that the plan leaves idle
  int64_t bought = 0;       // of the spares, beyond the devices asked for
  double availability = 1;  // share of the time in which there are enough nodes
};

struct Economics {
  int64_t steps = 0;
  Seconds busy;
  Seconds wall;                  // busy, if no failures were asked for
  std::optional<double> cost;    // USD; absent also where the wall time is infinite
  std::optional<double> energy;  // J; likewise
  std::optional<Goodput> goodput;
};

// What is saved of every parameter: of Trireme's own programs the master weight and two moments of
// AdamW; of a stack with a description its parameter_bytes and optimizer_bytes, with Megatron's
// mixed precision the 16-bit weight beside them (14 bytes).
Bytes checkpointBytes(int64_t numParameters, const spec::StackProfile& stack,
                      spec::Precision precision, const spec::DeviceSpec& device);

// Requires tokens above 0. A wall time that failures make infinite is infinite.
Economics economicsOf(const Training& training, const Scenario& scenario);

struct LeastEconomics {
  Seconds wall;
  double cost = 0;  // USD; 0 without a price
};

// Bounds from below of economicsOf() of all trainings that have `least.gpus` to `mostGpus` devices,
// whose steps take at least as long as those of `least`, on at least as many devices and nodes in
// use, and at most mostNodesUsed. With a repair time all that are present are whole nodes.
//
//   wall >= busy / goodput / availability: fewer devices fail less often, and fewer nodes are there
//           more often, with as many spares as may be idle, or as the most nodes want
//   cost >= price x busy / goodput x the least owned / availability of nodes: at least those that
//           are present, or those in use and the spares that were asked for
LeastEconomics leastEconomics(const Training& least, int64_t mostGpus, int64_t mostNodesUsed,
                              const Scenario& scenario);

}  // namespace trireme::planner
