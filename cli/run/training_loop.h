// Steps until the last one, a failure or Ctrl-C, with what a long run needs on the way.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/output/progress.h"
#include "cli/run/metrics_file.h"
#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/program.h"
#include "runtime/data/data_source.h"
#include "runtime/session.h"

namespace trireme::cli {

struct LoopOptions {
  int64_t numSteps = 0;  // the number of steps done, counted from the start of training, to stop at
  std::string saveFolder;  // empty: no checkpoints; made anew if it has been removed meanwhile
  bool savesHere = true;   // false: another process writes them
  int64_t saveEvery = 0;   // steps; 0: only at the end
  std::string resumed;     // the checkpoint that the run begins with; empty: none
  bool keepsTrace = true;  // of all steps, where the session records one; else of the last
  bool showsProgress = true;
  Terminal terminal = stderrTerminal();  // that it is shown on
};

struct LoopResult {
  std::vector<runtime::StepResult> steps;
  std::string lastCheckpoint;  // empty: none
  bool interrupted = false;
};

// Runs `session` on `data`; each step goes to `metrics` when it is done. Stops after a complete
// step and saves a checkpoint however it stops, but for a failure of the training. Errors: those of
// MetricsFile::write and, before the step that they would fail, of `data`, which say what was
// saved; Session::step and Session::saveCheckpoint;
// kInvalidArgument also if loss or gradient are not finite any more: nothing is saved then, and the
// newest checkpoint is named.
Result<LoopResult> train(runtime::Session& session, runtime::DataSource& data, MetricsFile& metrics,
                         const LoopOptions& options);

// Of one step of the program.
int64_t tokensPerStep(const program::Program& program);
// Of all ranks together.
Bytes arenaBytes(const program::Program& program);

}  // namespace trireme::cli
