// Who started this process, and as which of how many: read from the environment, as torchrun, srun
// and mpirun leave it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ir/base/status.h"

namespace trireme::runtime {

struct Launch {
  std::string launcher;  // "torchrun", "srun", "mpirun"
  int32_t rank = 0;
  int32_t numProcesses = 1;
  int32_t rankOnMachine = 0;
  std::string host;  // where rank 0 listens
  int32_t port = 0;
};

// The value of a variable; nothing: not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment processEnvironment();

// Nothing: no launcher, or one that started a single process.
//   torchrun  RANK, WORLD_SIZE, LOCAL_RANK
//   mpirun    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK; or PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   srun      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID of a job step
// Rank 0 listens at MASTER_ADDR:MASTER_PORT. Where these are not set: on the first machine of the
// job step (srun), or on this one, if all processes are here; at a port made of the job's number
// (srun), or 29500. Under torchrun, whose own store listens at MASTER_PORT, at the port after it.
// kInvalidArgument: a variable that is missing or malformed; names it.
Result<std::optional<Launch>> detectLaunch(const Environment& environment);

// Whether a launcher left its variables, even if it started one process only.
bool hasLauncher(const Environment& environment);

// The same environment with rank 0 at `text`, "HOST:PORT" or "[::1]:29500".
// kInvalidArgument: it is not that.
Result<Environment> withRendezvous(Environment environment, const std::string& text);

// The first host of Slurm's list: "node[03-07,9],login" is node03.
std::string firstHost(const std::string& list);

}  // namespace trireme::runtime
