#include "cost_models/collectives.h"

#include "ir/base/status.h"

namespace trireme::cost {
namespace {

// Every rank sends one n-th of the tensor to its neighbour, n - 1 times.
Seconds onePassTime(Bytes payload, int64_t n, const Link& link) {
  TRIREME_CHECK(n >= 1);
  const Seconds chunk = (payload / link.bandwidth) / static_cast<double>(n);
  return (link.latency + chunk) * static_cast<double>(n - 1);
}

Seconds onePassTime(Bytes payload, const Levels& levels) {
  Seconds total;
  for (const Level& level : levels) {
    total += onePassTime(payload, level.size, level.link);
    payload = payload / static_cast<double>(level.size);
  }
  return total;
}

}  // namespace

Seconds ringReduceScatterTime(Bytes payload, int64_t n, const Link& link) {
  return onePassTime(payload, n, link);
}

Seconds ringAllGatherTime(Bytes payload, int64_t n, const Link& link) {
  return onePassTime(payload, n, link);
}

Seconds ringAllReduceTime(Bytes payload, int64_t n, const Link& link) {
  return ringReduceScatterTime(payload, n, link) + ringAllGatherTime(payload, n, link);
}

Seconds reduceScatterTime(Bytes payload, const Levels& levels) {
  return onePassTime(payload, levels);
}

Seconds allGatherTime(Bytes payload, const Levels& levels) { return onePassTime(payload, levels); }

Seconds allReduceTime(Bytes payload, const Levels& levels) {
  return reduceScatterTime(payload, levels) + allGatherTime(payload, levels);
}

Seconds sendTime(Bytes payload, const Link& link) {
  return link.latency + payload / link.bandwidth;
}

}  // namespace trireme::cost
