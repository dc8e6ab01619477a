// How many devices Slurm is asked for: the #SBATCH lines of a script and the options of srun.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace trireme::codegen {

struct SlurmNumber {
  int64_t value = 0;
  std::string written;  // "--nodes=8"
};

struct SlurmNumbers {
  std::optional<SlurmNumber> nodes, tasks, tasksPerNode, gpus, gpusPerNode, gpusPerTask;
  int line = 1;  // of the first of them
};

// Of the #SBATCH lines. kInvalidArgument, with file and line: a number that is none, or is said
// twice and differs.
Result<SlurmNumbers> readSbatch(const std::string& text, const std::string& file);
// Puts the options of srun over them; those with open parts are passed over.
Status readSrun(const std::vector<std::string>& words, const std::string& place,
                SlurmNumbers& numbers);

// All devices: nodes x devices of each, all of them at once, or tasks x devices of each; without
// any of these the tasks, if every task `isRank`. 0: it is not said. kInvalidArgument: two of them
// differ.
Result<int64_t> slurmDevices(const SlurmNumbers& numbers, bool isRank, const std::string& file);

// Of those on each node; 0: it is not said, or not the same on all.
int64_t slurmDevicesPerNode(const SlurmNumbers& numbers, bool isRank);

// $SLURM_NNODES and its likes, as the script finds them.
std::map<std::string, int64_t> slurmVariables(const SlurmNumbers& numbers);

}  // namespace trireme::codegen
