// Which commands a script runs, without running them: control flow is followed with the variables
// that the text sets.
#pragma once
#include <string>
#include <vector>

#include "codegen/import/shell_expansion.h"
#include "codegen/import/shell_parser.h"

namespace trireme::codegen {

// A command without what the shell itself does: assignments, tests, echo.
struct ShellLaunch {
  std::vector<ShellText> words;  // of `srun bash -c "torchrun ..."`: srun bash torchrun ...
  int line = 1;
  int loopLine = 0;    // of the loop around it; 0 if it runs once
  size_t command = 0;  // which word names it: 2 in this example
  // NVTE_...=value, of its environment: they choose Transformer Engine's kernels.
  std::vector<ShellText> kernelVariables;
};

// A condition that the text does not decide, and how it was taken.
struct ShellDecision {
  int line = 1;
  size_t choice = 0, choices = 2;  // 0: true, or the first branch of a case
};

struct ShellRun {
  std::vector<ShellLaunch> launches;
  std::vector<ShellDecision> decisions;
};

// One way through the script: open conditions are taken as `choices` says, in the order in which
// they are met, and as 0 behind its end. `variables` are set before it begins.
// kInvalidArgument, with file and line: parseShell's of commands in quotes; commands inside of
// each other without end. kResourceExhausted: more steps or longer values than launch scripts have.
struct ShellInput {
  const ShellList& script;
  const std::string& file;
  const std::map<std::string, ShellValue>& variables;
};
Result<ShellRun> runShell(const ShellInput& input, const std::vector<size_t>& choices);

}  // namespace trireme::codegen
