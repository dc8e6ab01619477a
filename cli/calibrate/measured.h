// What measurements of hosts and of GPUs have in common.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cost_models/measured_kernels.h"
#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "runtime/measure/measure.h"

namespace trireme::cli {

struct MeasuredStream {
  std::string name;  // "copy"
  BytesPerSecond bandwidth;
};

struct MeasuredCluster {
  int64_t numRanks = 1;  // that were measured: the cluster may have more
  spec::ClusterSpec cluster;
  cost::KernelFit fit;
  std::vector<MeasuredStream> streams;  // of a GPU
};

double roundedTo4Digits(double value);
// No measurement has more digits.
template <typename T>
T rounded(T value) {
  return T(roundedTo4Digits(value.count()));
}

spec::CollectiveKind collectiveOf(runtime::Exchange exchange);

// Of a collective among `group` ranks whose full tensor has `bytes`, in `time`.
spec::CollectivePoint curvePoint(runtime::Exchange exchange, int64_t group, int64_t bytes,
                                 Seconds time);

}  // namespace trireme::cli
