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

// The same over a group that spans several levels: reduce-scatter inside the innermost blocks, then
// among the blocks on the n_0-th that each member now holds, and so on; all-gather runs back.
//
//   reduce-scatter(payload) = sum over levels k of ring(payload / (n_0 ... n_{k-1}), n_k, link_k)
//   all-gather              = reduce-scatter      (the same steps in reverse)
//   all-reduce              = reduce-scatter + all-gather
//
// With equal links the bandwidth term is that of one flat ring of n = n_0 n_1 ... members,
//   (n_0 - 1)/n_0 + (n_1 - 1)/(n_0 n_1) + ... = (n - 1)/n
// with fewer latencies; with outer links no faster than inner ones it is never above the flat ring
// over the slowest link. A group of one (no levels) costs nothing.
Seconds reduceScatterTime(Bytes payload, const Levels& levels);
Seconds allGatherTime(Bytes payload, const Levels& levels);
Seconds allReduceTime(Bytes payload, const Levels& levels);

// One message.
Seconds sendTime(Bytes payload, const Link& link);

}  // namespace trireme::cost
