// Which algorithm of cuBLASLt each matrix product runs: timed once per product and kind of GPU by
// one rank, told to all others, and kept in a file.
//
// Replicas run the same algorithm, so they compute the same; a later run that finds the file
// repeats an earlier one bit by bit. Two runs that both time may choose differently, and then
// differ in the order of their sums.
//
// A kind is a GPU by name and compute capability, with a version of cuBLASLt and one of the driver.
// Of each kind the lowest rank keeps the file; a product that is not in it is timed by the lowest
// rank that has it. One product after the other, so nobody measures on a GPU that others use, and
// no rank waits longer for another than one product takes.
#pragma once
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/cuda/cuda_rank.h"

namespace trireme::runtime::cuda {

struct MatmulTuning {
  bool isOn = false;        // false: the heuristic's first choice
  std::string cacheFolder;  // empty: the algorithms are not kept
};

// "NVIDIA H100 80GB HBM3, compute capability 9.0, cuBLASLt 130100, driver 13000".
std::string kindOf(const Gpu& gpu);

// Settles the algorithms of `rank`'s products. All ranks of `control` call it together, before any
// value is in the arenas: timing overwrites them, and they are zero afterwards. `notes` gets what
// was wrong with the file.
// kInvalidArgument: ranks differ in whether to time, or the file has an algorithm that cuBLASLt
// refuses. kUnavailable: another rank failed. Also the errors of timeFastest().
Status tuneMatmuls(CudaRank& rank, Communicator& control, const MatmulTuning& tuning,
                   std::vector<std::string>& notes);

}  // namespace trireme::runtime::cuda
