// The command in a script that launches Megatron-LM.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/import/shell_run.h"
#include "ir/base/status.h"

namespace trireme::codegen {

struct MegatronLaunch {
  std::vector<ShellText> slurm;            // options of srun
  std::vector<ShellText> mpi;              // of mpirun
  std::vector<ShellText> launcher;         // of torchrun and its likes
  std::vector<ShellText> program;          // of pretrain_gpt.py; all of them if no script is named
  std::vector<ShellText> kernelVariables;  // ShellLaunch's, and those in the command's own words
  int line = 1;
  bool hasLauncher = false;  // or every process of srun or mpirun is one rank
};

// The command with --micro-batch-size or, if there is none, the first that launches something with
// words that are not known. A text that begins with a flag is one list of arguments.
// Absent: no such command. kInvalidArgument, with file and line: several, or one in a loop, or
// one in quotes of a command that is not followed.
Result<std::optional<MegatronLaunch>> findMegatron(const ShellRun& run, const std::string& file);

}  // namespace trireme::codegen
