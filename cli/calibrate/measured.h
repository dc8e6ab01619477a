// What measurements of hosts and of GPUs have in common.
#pragma once
#include <fmt/format.h>

#include <functional>
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

// How much of 1 is done, and what comes next.
using MeasureProgress = std::function<void(double done, const std::string& what)>;

// "2026-11-21", of UTC.
std::string today();

double roundedTo4Digits(double value);
// No measurement has more digits.
template <typename T>
T rounded(T value) {
  return T(roundedTo4Digits(value.count()));
}

spec::CollectiveKind collectiveOf(runtime::Exchange exchange);

// A collective among `group` ranks. `timeOf`: of a full tensor of that many bytes, a multiple of
// 4 group. `sizes` are rounded up to such, and increase by at least as much. Errors: of `timeOf`.
Result<spec::CollectiveCurve> measureCurve(
    runtime::Exchange exchange, int64_t group, const std::vector<int64_t>& sizes,
    const std::string& source, const std::function<Result<Seconds>(int64_t bytes)>& timeOf);

}  // namespace trireme::cli
