// How often to save a checkpoint, and what failures cost. Failures come one by one at random, with
// the same mean time M between them (exponentially distributed); saving takes C, during which
// nothing is computed; after a failure, restarting takes R, and what was computed since the last
// checkpoint is computed again.
//
//   Young:  J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17
//           (9), 1974:  sqrt(2 C M)
//   Daly:   J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
//           dumps", Future Generation Computer Systems 22, 2006, eq. 37:
//             sqrt(2 C M) (1 + 1/3 sqrt(C / 2M) + 1/9 (C / 2M)) - C    if C < 2 M
//             M                                                        otherwise
//   wall:   Daly 2006, eq. 20, of a training that computes for T:
//             M e^(R / M) (e^((t + C) / M) - 1) T / t,   t the interval
#pragma once
#include <cstdint>

#include "ir/base/units.h"

namespace trireme::planner {

struct FailureRate {
  Seconds meanBetween;  // M, of the whole job
  Seconds save;         // C
  Seconds restart;      // R
};

// All times above 0; `save` and `restart` may be 0. Intervals are of computing, between two saves.
Seconds youngInterval(const FailureRate& rate);
Seconds dalyInterval(const FailureRate& rate);

// Computing over wall time with that interval, in (0, 1]; 0 where failures leave nothing.
double goodputOf(const FailureRate& rate, Seconds interval);

// The chance that at least `needed` of `owned` nodes work, each of which works for `meanBetween`
// and is then repaired for `repair`, independently of the others, in the long run: binomial with
// p = meanBetween / (meanBetween + repair).
double availabilityOf(int64_t needed, int64_t owned, Seconds meanBetween, Seconds repair);

// How many such nodes to own, at least `owned`, so that (owned + extra) / availabilityOf(owned) is
// least: what is paid for over the time in which it is of use. A node more is worth it as long as
//
//   (owned + extra) p > P(at least `needed` work) / P(needed - 1 work)
//
// From some number on it is not, since what stands on the right grows faster. 2^24 nodes, as many
// as clusters have devices, are the most. Requires 1 <= needed <= owned, and -1 < extra < 1; at
// least 0 where one node is needed.
int64_t cheapestOwned(int64_t needed, int64_t owned, double extra, Seconds meanBetween,
                      Seconds repair);

}  // namespace trireme::planner
