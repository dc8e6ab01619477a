// Time of collectives under the alpha-beta model: rings, nested over the tiers of the network.
#pragma once
#include "cost_models/topology.h"
#include "ir/base/units.h"

namespace trireme::cost {

// Time from the last rank entering the collective until every rank is done.
// `payload` is the size of the *full* tensor: what all-reduce holds on each rank, what all-gather
// produces, what reduce-scatter consumes.
//
//   step            = latency + (payload / n) / bandwidth
//   reduce-scatter  = (n - 1) step
//   all-gather      = (n - 1) step
//   all-reduce      = reduce-scatter + all-gather
//
// Model: Thakur, Rabenseifner, Gropp, IJHPCA 2005. Left out: kernel launch, link contention,
// protocol switches; they live in the measured `Link`.
//
// Requires n >= 1. A group of one costs nothing.
Seconds ringReduceScatterTime(Bytes payload, int64_t n, const Link& link);
Seconds ringAllGatherTime(Bytes payload, int64_t n, const Link& link);
Seconds ringAllReduceTime(Bytes payload, int64_t n, const Link& link);

// The same over a group that spans several levels: rings through all members, in which those of a
// block follow each other, so that a ring enters and leaves every block once, and as many rings as
// a block has members with links of their own. All links work at once, and the one that carries
// most for its rate sets the pace:
//
//   pace(payload)  = (n - 1)/n x max over levels k of payload / (N_k x bandwidth_k),
//                    N_k members below level k, N_0 = 1, which share what leaves their block
//   latency        = sum over levels of (n_k - 1) B_k latency_k,
//                    B_k blocks of level k in the group: every hop of the ring, n - 1 in all, so
//                    that a level more whose links are like those below changes nothing
//   reduce-scatter = all-gather = pace + latency,   all-reduce = both
//
// That is how NCCL's rings run over machines; with one level it is the ring above. A group of one
// (no levels) costs nothing.
Seconds reduceScatterTime(Bytes payload, const Levels& levels);
Seconds allGatherTime(Bytes payload, const Levels& levels);
Seconds allReduceTime(Bytes payload, const Levels& levels);

// The time of `kind` (all-reduce, all-gather or reduce-scatter): by the measured curve of the tier
// if the group lies within one and the tier has a curve for as many members, else by the formulas.
// Between points the time is interpolated, sizes and times by their logarithms; a smaller payload
// takes the time of the first point, down to the formula's latency; a larger one has the last
// point's bus bandwidth if the curve has levelled off there, and otherwise goes on as between the
// last two points, or at the pace of the links if that is less. Gathering and scattering without a
// curve of their own take half of an all-reduce: they are its halves; but no less than the pace of
// their links, which switches that add up on the way spare an all-reduce alone.
Seconds collectiveTime(spec::CollectiveKind kind, Bytes payload, const Levels& levels);

// What `payload` takes in `parts` calls, whatever their sizes, at least. Without a curve that is
// exact: the bytes once, the latencies each time. By a curve: all bytes at its best bus bandwidth,
// or as beyond its end.
Seconds leastCollectiveTime(spec::CollectiveKind kind, Bytes payload, int64_t parts,
                            const Levels& levels);

// Of a tensor-parallel group, however the others lie: as close together as its ranks may be, alone,
// and with parts of hosts that they do not fill as if they were not there, which is faster where
// their links are slow.
Seconds leastTensorTime(spec::CollectiveKind kind, Bytes payload, int64_t tp,
                        const spec::ClusterSpec& cluster);

// What is felt of communication that takes `time` beside work that takes `work`, if `share` of the
// time is felt though all of it is hidden: max(share time, time - work).
Seconds exposedTime(Seconds time, Seconds work, double share);

// One message.
Seconds sendTime(Bytes payload, const Link& link);
// Of a message from every stage to the next and, with virtual stages, from the last one to the
// first (Pipeline::hops). Requires pp > 1.
std::vector<Seconds> stageHops(Bytes message, const plan::Plan& plan,
                               const spec::ClusterSpec& cluster);

}  // namespace trireme::cost
