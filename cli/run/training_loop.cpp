#include "cli/run/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/paths.h"
#include "cli/process_memory.h"
#include "cli/run/checkpoint_folder.h"
#include "cli/run/interrupt.h"
#include "ir/base/format.h"

namespace trireme::cli {
namespace {

using runtime::StepResult;

std::string describe(const StepResult& step, const program::Program& program, int64_t numSteps) {
  const std::string scaled =
      step.scaled
          ? fmt::format("  scale {}, {} skipped", step.scaled->lossScale, step.scaled->numSkipped)
          : "";
  return fmt::format("step {}/{}  loss {:.4f}{}  {:.0f} tok/s  RSS {}, arenas {}", step.step + 1,
                     numSteps, step.loss, scaled,
                     static_cast<double>(tokensPerStep(program)) / step.seconds,
                     formatBytes(readProcessMemory().now), formatBytes(arenaBytes(program)));
}

// The error of a training that cannot go on, with what there is to go on from.
Status withNewest(const Status& status, const LoopResult& result, const LoopOptions& options) {
  const std::string& newest =
      result.lastCheckpoint.empty() ? options.resumed : result.lastCheckpoint;
  return {status.code(), fmt::format("{}; {}", status.message(),
                                     newest.empty() ? "there is no checkpoint of this run"
                                                    : "the newest checkpoint is " + newest)};
}

// The same where the checkpoint that the run began with is what it cannot go on from.
Status withBeginning(const Status& status, const std::string& checkpoint) {
  return {status.code(), fmt::format("{}; they are those of {}: resume an earlier checkpoint, if "
                                     "there is one",
                                     status.message(), checkpoint)};
}

Status save(const runtime::Session& session, const LoopOptions& options, LoopResult& result) {
  const std::string path = checkpointPath(options.saveFolder, session.numStepsDone());
  // Where it cannot be made, writing says so, which is done together.
  if (options.savesHere) static_cast<void>(createFolder(options.saveFolder).ok());
  if (const Status status = session.saveCheckpoint(path); !status.ok())
    return withNewest(status, result, options);
  result.lastCheckpoint = path;
  return {};
}

// What a failure that is none of the training leaves.
Status andWhatIsSaved(const Status& failure, const Status& saved, const std::string& checkpoint) {
  if (failure.ok()) return saved;
  if (!saved.ok()) return {failure.code(), failure.message() + "; " + saved.message()};
  if (checkpoint.empty()) return failure;
  return {failure.code(),
          fmt::format("{}; the training up to here is saved: {}", failure.message(), checkpoint)};
}

// Whether the training can go on after this step. One whose loss is scaled is skipped where its
// gradient overflows, and tried with a smaller scale.
Status checkFinite(const StepResult& step, bool isFirst) {
  const auto refuse = [&](std::string_view what, double value) {
    return invalidArgument(
        fmt::format("step {}: the {} is {}: {}", step.step + 1, what,
                    std::isnan(value) ? "nan" : fmt::format("{}", value),  // without a sign
                    isFirst ? "the weights that the run begins with give none"
                            : "the training has diverged; lower the learning rate"));
  };
  if (!std::isfinite(step.loss)) return refuse("loss", step.loss);
  if (!step.scaled && !std::isfinite(step.gradNorm))
    return refuse("gradient's norm", step.gradNorm);
  return {};
}

// So many in a row, with the least scale there is, and later ones will hardly be trained.
constexpr int64_t kMostSkipped = 100;

bool isSkippedAtLeast(const StepResult& step, const program::Training& training) {
  return step.scaled && step.scaled->isSkipped && step.scaled->lossScale <= training.minLossScale;
}

Status overflows(const std::string& what, const program::Training& training) {
  return invalidArgument(
      fmt::format("{}: gradients overflow f16 even with min_loss_scale, {}; lower it, or train in "
                  "bf16",
                  what, training.minLossScale));
}

// `numSkipped`: steps in a row, of which `step` is the last.
Status checkSkipped(const StepResult& step, int64_t numSkipped, const program::Training& training) {
  if (numSkipped < kMostSkipped) return {};
  return overflows(
      fmt::format("steps {} to {} were all skipped, and what follows would hardly be trained",
                  step.step + 2 - numSkipped, step.step + 1),
      training);
}

// A run that was to take several steps and skipped them all, the last with the least scale there
// is, has trained nothing.
Status checkTrained(const LoopResult& result, const program::Training& training) {
  const auto isSkipped = [](const StepResult& step) {
    return step.scaled && step.scaled->isSkipped;
  };
  if (result.interrupted || result.steps.size() < 2 ||
      !std::all_of(result.steps.begin(), result.steps.end(), isSkipped) ||
      !isSkippedAtLeast(result.steps.back(), training))
    return {};
  const Status status =
      overflows(fmt::format("all {} steps were skipped and the weights are as they were",
                            result.steps.size()),
                training);
  if (result.lastCheckpoint.empty()) return status;
  return {status.code(), status.message() + "; saved: " + result.lastCheckpoint};
}

}  // namespace

int64_t tokensPerStep(const program::Program& program) {
  return program.training.globalBatchSize * program.training.sequenceLength;
}

Bytes arenaBytes(const program::Program& program) {
  Bytes sum;
  for (const program::RankInfo& rank : program.ranks)
    sum += Bytes(static_cast<double>(program.roles[static_cast<size_t>(rank.role)].arenaBytes));
  return sum;
}

Result<LoopResult> train(runtime::Session& session, runtime::DataSource& data, MetricsFile& metrics,
                         const LoopOptions& options) {
  const int64_t tokens = tokensPerStep(session.program());
  const int64_t first = session.numStepsDone();
  const Interrupt interrupt;
  Progress progress(options.terminal);
  LoopResult result;
  bool saved = true;
  int64_t numSkipped = 0;  // in a row, with the least loss scale
  Status skipped;          // what was trained before is saved all the same
  Status written;          // of the metrics: a full disk there is no reason to lose the training
  Status unreadable;       // nor are data that the next step cannot read
  while (session.numStepsDone() < options.numSteps && !result.interrupted && skipped.ok()) {
    if (!options.keepsTrace) session.takeTrace();
    const Result<StepResult> stepped = session.step(data);
    if (!stepped.has_value()) return Error(withNewest(stepped.error(), result, options));
    const StepResult& step = *stepped;
    result.steps.push_back(step);
    written = metrics.write(step, tokens);
    const bool isFirst = result.steps.size() == 1;
    if (const Status finite = checkFinite(step, isFirst); !finite.ok())
      return Error(isFirst && !options.resumed.empty() ? withBeginning(finite, options.resumed)
                                                       : withNewest(finite, result, options));
    const program::Training& training = session.program().training;
    numSkipped = isSkippedAtLeast(step, training) ? numSkipped + 1 : 0;
    skipped = checkSkipped(step, numSkipped, training);
    const int64_t done = session.numStepsDone();
    if (options.showsProgress)
      progress.update(
          static_cast<double>(done - first) / static_cast<double>(options.numSteps - first),
          describe(step, session.program(), options.numSteps));
    saved = options.saveEvery > 0 && done % options.saveEvery == 0;
    if (saved)
      if (const Status now = save(session, options, result); !now.ok())
        return Error(andWhatIsSaved(written, now, ""));
    if (done < options.numSteps) unreadable = session.checkData(data);
    TRIREME_ASSIGN_OR_RETURN(
        const bool stops,
        session.anyProcess(interrupt.requested() || !written.ok() || !unreadable.ok()));
    result.interrupted = stops && done < options.numSteps;
  }
  Status last;
  if (!saved && !options.saveFolder.empty()) last = save(session, options, result);
  if (!unreadable.ok() && options.saveFolder.empty())
    unreadable = withNewest(unreadable, result, options);
  TRIREME_RETURN_IF_ERROR(
      andWhatIsSaved(written.ok() ? unreadable : written, last, result.lastCheckpoint));
  if (!skipped.ok()) return Error(withNewest(skipped, result, options));
  TRIREME_RETURN_IF_ERROR(checkTrained(result, session.program().training));
  return result;
}

}  // namespace trireme::cli
