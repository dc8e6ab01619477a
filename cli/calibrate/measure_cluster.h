// Measures this machine as a cluster whose devices are ranks: threads that share it.
#pragma once
#include <string>
#include <vector>

#include "cli/calibrate/measured.h"

namespace trireme::cli {

// Bytes that no cache of this machine holds: twice the third level, which others may use as well,
// but between 256 MiB and 1 GiB.
int64_t bytesBeyondCaches();

struct MeasureOptions {
  int64_t numRanks = 1;
  std::string name;    // of the cluster
  std::string source;  // of every number: who measured when, and where
  std::vector<DType> types = {DType::kF64, DType::kF32, DType::kBf16};  // of the kernels
  Seconds window{0.015};                                                // of one measurement
  int64_t footprint = bytesBeyondCaches();  // of all ranks that are at work at once
  runtime::MeasureProgress progress;
};

// "measured on 2026-11-21 by trireme calibrate 0.1.0 on <processor>, 2 ranks at once on 2 cores".
std::string measurementSource(int64_t numRanks);

// All ranks do the same at the same time, as many as there are cores, so that every number is that
// of one rank of a machine whose other ranks are at work too. Takes half a minute to a minute, a
// third of that for one type.
//
// kUnavailable: this build has no code generator, and so cannot time what it generates.
// kResourceExhausted: not enough memory or threads.
Result<MeasuredCluster> measureCluster(const MeasureOptions& options);

}  // namespace trireme::cli
