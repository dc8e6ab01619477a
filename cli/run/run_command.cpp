// trireme run: trains the model of a bundle.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output/json_text.h"
#include "cli/output/progress.h"
#include "cli/output/tell.h"
#include "cli/paths.h"
#include "cli/run/cache_folder.h"
#include "cli/run/checkpoint_folder.h"
#include "cli/run/file_format.h"
#include "cli/run/folder_lock.h"
#include "cli/run/model_flags.h"
#include "cli/run/report.h"
#include "cli/write_file.h"
#include "ir/base/format.h"
#include "ir/program/bundle.h"
#include "ir/program/checksum.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/foreign.h"
#include "runtime/comm/process_world.h"
#include "runtime/comm/timeout.h"
#include "runtime/data/token_files.h"

namespace trireme::cli {
namespace {

struct RunOptions {
  std::string bundle, resume, save, metrics, trace, rendezvous;
  ModelFlags modelFlags;
  std::vector<std::string> data;
  std::optional<int64_t> steps, saveEvery;
  std::optional<runtime::TokenType> tokens;
  std::optional<runtime::SampleOrder> order;
  int64_t threads = 1;
  double timeoutSeconds = runtime::SessionOptions{}.timeoutSeconds;
  bool newData = false, summary = false, json = false, virtualRanks = false;
  bool noCudaGraphs = false;
  std::optional<bool> timesMatmuls;
  // Filled in when the run starts. One process per rank: that of rank 0 alone prints and writes.
  runtime::ProcessWorld* processes = nullptr;
  bool traces = false, keepsTrace = false, reports = false;
  bool isQueued = false;      // --resume names the folder of --save
  bool beginsToSave = false;  // and nothing is there yet
  bool speaks() const { return processes == nullptr || processes->rank() == 0; }
};

bool isDataset(const std::string& path) { return path.ends_with(".idx"); }

// Files whose tokens are not what the flags say, or left unsaid.
Status checkData(const RunOptions& run) {
  std::error_code ignored;  // of what may not be looked at, opening it says so
  for (const std::string& path : run.data) {
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(path + ".idx", ignored))
      return invalidArgument(
          fmt::format("--data {0}: no such file; the Megatron dataset is {0}.idx", path));
    if (isDataset(path) && run.tokens)
      return invalidArgument(fmt::format(
          "--tokens: the dataset {} says itself what its tokens are; leave --tokens away", path));
    if (!isDataset(path)) TRIREME_RETURN_IF_ERROR(checkPlainData(path));
    if (!path.ends_with(".bin") || run.tokens) continue;
    const std::string index = path.substr(0, path.size() - 4) + ".idx";
    const bool hasIndex = std::filesystem::exists(index, ignored);
    return invalidArgument(fmt::format(
        "--data {}: an array of what? {}", path,
        hasIndex ? fmt::format("For the Megatron dataset give {}, for an array --tokens", index)
                 : "--tokens says it, such as --tokens uint16"));
  }
  return {};
}

// As many open files as the system lets a process have: of each of --data there is one.
void allowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // if it fails the files that are too many are named
}

Result<std::unique_ptr<runtime::TokenFiles>> openData(const program::Training& training,
                                                      const RunOptions& run) {
  constexpr int64_t kByteValues = 256;
  TRIREME_RETURN_IF_ERROR(checkData(run));
  runtime::TokenFilesOptions options;
  options.seed = training.seed;
  options.vocabSize = training.vocabSize;
  options.sequenceLength = training.sequenceLength;
  options.type = run.tokens.value_or(runtime::TokenType::kU8);
  options.order = run.order.value_or(runtime::SampleOrder::kRandom);
  const bool readsBytes = !run.tokens && !std::all_of(run.data.begin(), run.data.end(), isDataset);
  if (readsBytes && training.vocabSize < kByteValues)
    return Error(invalidArgument(
        fmt::format("the model's vocabulary has {} tokens, but a token is a byte of --data, so it "
                    "needs at least {}; --tokens names another type",
                    training.vocabSize, kByteValues)));
  if (readsBytes && training.vocabSize > kByteValues && !run.modelFlags.initFrom.empty() &&
      run.speaks())
    tell(
        "note: a token is a byte of --data, and the weights of --init-from know {} tokens: if "
        "these are others, give an array of them with --tokens\n",
        training.vocabSize);
  if (run.processes != nullptr) {
    options.part = run.processes->rank();
    options.numParts = run.processes->numProcesses();
  }
  allowManyFiles();
  Progress progress;
  if (run.speaks())
    options.whileChecking = [&](int64_t done, int64_t all) {
      const auto doneBytes = static_cast<double>(done), allBytes = static_cast<double>(all);
      progress.update(doneBytes / allBytes,
                      fmt::format("checking the tokens of --data, {} of {}",
                                  formatBytes(Bytes(doneBytes)), formatBytes(Bytes(allBytes))));
    };
  return runtime::TokenFiles::open(run.data, options);
}

std::string summaryOf(const program::Bundle& bundle) {
  if (!bundle.summary.empty()) return bundle.summary;
  const program::Program& program = bundle.program;
  return fmt::format("tp {}, pp {}, dp {}, microbatch {}", program.tp, program.pp, program.dp,
                     program.training.microbatchSize);
}

// The number of steps to stop at: by default that of the learning rate's schedule.
Result<int64_t> lastStep(const RunOptions& options, const program::Training& training) {
  const int64_t scheduled = training.warmupSteps + training.decaySteps;
  if (options.steps) return *options.steps;
  if (training.decaySteps > 0) return scheduled;
  return Error(invalidArgument(
      "the number of steps is missing: give --steps (the plan has no decay_steps to go by)"));
}

Result<std::unique_ptr<runtime::Session>> openSession(program::Bundle bundle,
                                                      const RunOptions& options) {
  constexpr int64_t kMaxThreads = 1024;
  if (options.threads > kMaxThreads)
    return Error(invalidArgument(
        fmt::format("--threads {}: must be at most {}", options.threads, kMaxThreads)));
  if (options.timesMatmuls && !program::isGpuArch(bundle.target.arch))
    return Error(invalidArgument(fmt::format(
        "{}: --time-matmuls chooses cuBLASLt's algorithms on GPUs, and the bundle is for hosts",
        options.bundle)));
  runtime::SessionOptions session;
  session.threadsPerRank = static_cast<int>(options.threads);
  session.timeoutSeconds = options.timeoutSeconds;
  session.trace = options.traces;
  session.virtualRanks = options.virtualRanks;
  session.cudaGraphs = !options.noCudaGraphs;
  session.timesMatmuls = options.timesMatmuls.value_or(true);
  session.cacheFolder = cacheFolder(runtime::processEnvironment());
  session.processes = options.processes;
  Result<std::unique_ptr<runtime::Session>> result =
      runtime::Session::create(std::move(bundle), std::move(session));
  if (!result.has_value()) return Error(result.error().withContext(options.bundle));
  for (const std::string& note : (*result)->notes()) tell("note: {}\n", note);
  return result;
}

// Prepares the session's state: from a checkpoint, if there is one to resume from.
// Returns the checkpoint's path; an empty one is none.
Result<std::string> resume(runtime::Session& session, const RunOptions& options,
                           const runtime::DataSource& data, int64_t numSteps) {
  if (options.resume.empty()) return std::string();
  TRIREME_ASSIGN_OR_RETURN(const std::string path, findCheckpoint(options.resume));
  if (Status status = session.loadCheckpoint(path); !status.ok())
    return Error(
        withNextStep(std::move(status), path, session.program().training.modelFingerprint));
  if (session.numStepsDone() >= numSteps && !options.isQueued)
    return Error(invalidArgument(fmt::format(
        "nothing to do: {} has done {} steps, and the run ends at step {} of the training; --steps "
        "counts from its start, not from the checkpoint: give --steps {} or more",
        path, session.numStepsDone(), numSteps, session.numStepsDone() + 1)));
  const std::string &before = session.trainedOn(), now = data.identity();
  if (!options.newData && !before.empty() && before != now)
    return Error(invalidArgument(
        fmt::format("{} was trained on other data: {}; now --data has {}; --new-data goes on with "
                    "these",
                    path, before, now)));
  if (const std::vector<std::string>& changes = session.changedSettings();
      !changes.empty() && options.speaks())
    tell("note: from step {} on this run has {}\n", session.numStepsDone() + 1,
         fmt::join(changes, ", "));
  return path;
}

Result<MetricsFile> openMetrics(const RunOptions& options, const runtime::Session& session,
                                const LoopOptions& loop) {
  const int64_t done = session.numStepsDone();
  if (options.beginsToSave) {
    const int64_t firstSaved =
        loop.saveEvery > 0 ? std::min(loop.saveEvery, loop.numSteps) : loop.numSteps;
    TRIREME_RETURN_IF_ERROR(checkNothingSaved(options.metrics, options.save, firstSaved));
  }
  if (options.resume.empty() && !options.beginsToSave)
    return MetricsFile::open(options.metrics, std::nullopt);
  TRIREME_ASSIGN_OR_RETURN(MetricsFile metrics, MetricsFile::open(options.metrics, done));
  if (metrics.kept().isLastCutOff)
    tell("note: {}: its last line was cut off and is removed\n", options.metrics);
  if (metrics.kept().hasZeros) tell("note: {}: zeros at its end are removed\n", options.metrics);
  if (const std::vector<std::string>& gaps = metrics.kept().gaps; !gaps.empty())
    tell("note: {}: the run goes on behind step {}, and the file has {}\n", options.metrics, done,
         fmt::join(gaps, ", "));
  if (const int64_t count = metrics.kept().numRemoved; count > 0)
    tell("note: {}: {} after step {} removed, the run does {} again\n", options.metrics,
         count == 1 ? "1 line" : fmt::format("{} lines", count), done, count == 1 ? "it" : "them");
  return metrics;
}

// --trace, --report.
Status writeFiles(const RunOptions& options, RunReport& report, runtime::Session& session) {
  if (!options.traces) return {};
  TRIREME_ASSIGN_OR_RETURN(const std::vector<program::TraceEvent> events, session.gatherTrace());
  if (!options.trace.empty())
    TRIREME_RETURN_IF_ERROR(
        writeFile(options.trace, program::toPerfettoJson(session.program(), events)));
  return writeRunReport(options.modelFlags, report, session.program(), events);
}

std::string textOf(const RunReport& report, const RunOptions& options) {
  if (options.json) return jsonText(jsonReport(report)) + "\n";
  return options.summary ? longReport(report) : shortReport(report);
}

// A checkpoint may be one that --resume reads or that --save keeps.
Status isNoCheckpoint(const char* flag, const std::string& path) {
  if (std::filesystem::path(path).extension() != ".safetensors") return {};
  return invalidArgument(
      fmt::format("{}: {} is named like a checkpoint; give another name", flag, path));
}

Status checkPaths(const RunOptions& options) {
  std::vector<NamedPath> inputs = {{"the bundle", options.bundle, true},
                                   {"--resume", options.resume},
                                   {"--init-from", options.modelFlags.initFrom},
                                   {"--cluster", options.modelFlags.cluster},
                                   {"--stack", options.modelFlags.stack}};
  for (const std::string& file : options.data) inputs.push_back({"--data", file});
  TRIREME_RETURN_IF_ERROR(checkOutputs(inputs, {{"--metrics", options.metrics},
                                                {"--trace", options.trace},
                                                {"--report", options.modelFlags.report}}));
  // Checkpoints may continue those of the folder that --resume names.
  TRIREME_RETURN_IF_ERROR(checkOutputs({inputs.front()}, {{"--save", options.save}}));
  TRIREME_RETURN_IF_ERROR(isNoCheckpoint("--metrics", options.metrics));
  TRIREME_RETURN_IF_ERROR(isNoCheckpoint("--trace", options.trace));
  TRIREME_RETURN_IF_ERROR(isNoCheckpoint("--report", options.modelFlags.report));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.metrics));
  if (options.resume.empty() && !options.beginsToSave)
    TRIREME_RETURN_IF_ERROR(checkNewMetrics(options.metrics));
  TRIREME_RETURN_IF_ERROR(checkWritable(options.modelFlags.report));
  return checkWritable(options.trace);
}

// The identity of files is made of their ends; the first samples come from anywhere in them. One
// that cannot be had is the same for the same data.
std::string describeData(runtime::DataSource& data, int64_t sequenceLength) {
  constexpr uint64_t kSamples = 64;
  std::vector<int32_t> tokens(static_cast<size_t>(sequenceLength));
  std::string known;
  for (uint64_t index = 0; index < kSamples; ++index) {
    std::fill(tokens.begin(), tokens.end(), 0);
    static_cast<void>(data.sample(index, sequenceLength, 1, tokens.data(), nullptr).ok());
    known.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t));
    known = std::to_string(program::crc32c(known));
  }
  return fmt::format("{}, samples {}", data.identity(), known);
}

// One that differs would train on another batch or from other weights, or wait for a checkpoint or
// a trace that the others do not make. The flags of rank 0's own outputs, and those that change no
// result (--threads, --timeout), are free. Before anything is loaded: that too is done together.
Status agree(runtime::Session& session, const RunOptions& options, runtime::DataSource& data,
             const LoopOptions& loop) {
  if (options.processes == nullptr) return {};
  const auto given = [](bool flag) { return std::string(flag ? "given" : "not given"); };
  runtime::PosixFileSystem files;
  const std::string &resume = options.resume, &initFrom = options.modelFlags.initFrom;
  std::string checkpoint = given(false);
  if (!resume.empty()) {
    const Result<std::string> path = findCheckpoint(resume);
    checkpoint = path.has_value() ? runtime::describeCheckpoint(*path, files)
                                  : fmt::format("unreadable ({})", path.error().message());
  }
  return session.agree(
      {{"--steps", std::to_string(loop.numSteps)},
       {"--data", describeData(data, session.program().training.sequenceLength)},
       {"--init-from",
        initFrom.empty() ? given(false) : runtime::describeForeignWeights(initFrom, files)},
       {"--resume", checkpoint},
       {"--save", given(!options.save.empty())},
       {"--save-every", options.saveEvery ? std::to_string(*options.saveEvery) : given(false)},
       {"--trace", given(options.keepsTrace)},
       {"--report", given(options.reports)}});
}

// The folder is this run's until the lock goes.
Result<std::unique_ptr<FolderLock>> openSaveFolder(const RunOptions& options) {
  if (options.save.empty() || !options.speaks()) return nullptr;
  if (options.resume.empty()) TRIREME_RETURN_IF_ERROR(checkSaveFolder(options.save, 0));
  TRIREME_RETURN_IF_ERROR(createFolder(options.save));
  TRIREME_ASSIGN_OR_RETURN(auto lock, FolderLock::take(options.save));
  if (lock != nullptr) removeUnfinished(options.save);
  return lock;
}

// One command line starts a run and, as often as its job is queued again, goes on with it: a
// --resume of the folder of --save, in which nothing is saved yet, is none, and once something is
// the weights of --init-from have been trained.
Status findBeginning(RunOptions& options) {
  std::error_code code;
  const auto placeOf = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(
        std::filesystem::absolute(std::filesystem::path(path) / "", code), code);
  };
  std::string& initFrom = options.modelFlags.initFrom;
  options.isQueued = !options.resume.empty() && !options.save.empty() &&
                     placeOf(options.resume) == placeOf(options.save);
  if (!options.resume.empty() && !initFrom.empty() && !options.isQueued)
    return invalidArgument(
        "--init-from and --resume are two beginnings: give one of them; both only where --resume "
        "names the folder of --save, for as long as nothing is saved there");
  if (!options.isQueued) return {};
  TRIREME_ASSIGN_OR_RETURN(options.beginsToSave, isWithoutCheckpoint(options.save));
  if (!options.beginsToSave) {
    initFrom.clear();
    return {};
  }
  options.resume.clear();
  return {};
}

struct Ended {
  int exitCode = kExitOk;
  std::string results = {};  // for stdout
  Status written = {};  // of --trace and --report, without which there are results all the same
};

Result<Ended> runRanks(RunOptions options) {
  TRIREME_RETURN_IF_ERROR(findBeginning(options));
  TRIREME_RETURN_IF_ERROR(checkModelFlags(options.modelFlags));
  TRIREME_RETURN_IF_ERROR(checkPaths(options));
  TRIREME_ASSIGN_OR_RETURN(program::Bundle bundle, program::readBundle(options.bundle));
  RunReport report;
  report.model = bundle.name;
  report.plan = summaryOf(bundle);
  report.numRanks = bundle.program.numRanks();
  report.tokensPerStep = tokensPerStep(bundle.program);
  TRIREME_RETURN_IF_ERROR(predict(options.modelFlags, bundle, options.bundle, report));
  const program::Training training = bundle.program.training;
  LoopOptions loop{.numSteps = 0,
                   .saveFolder = options.save,
                   .savesHere = options.speaks(),
                   .saveEvery = options.saveEvery.value_or(0),
                   .keepsTrace = options.keepsTrace,
                   .showsProgress = options.speaks()};
  TRIREME_ASSIGN_OR_RETURN(loop.numSteps, lastStep(options, training));
  TRIREME_ASSIGN_OR_RETURN(const auto data, openData(training, options));
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<FolderLock> lock, openSaveFolder(options));
  const std::string modelText = bundle.modelText;
  TRIREME_ASSIGN_OR_RETURN(const auto session, openSession(std::move(bundle), options));
  TRIREME_RETURN_IF_ERROR(agree(*session, options, *data, loop));
  TRIREME_RETURN_IF_ERROR(initialiseFrom(options.modelFlags, *session, modelText));
  TRIREME_ASSIGN_OR_RETURN(loop.resumed, resume(*session, options, *data, loop.numSteps));
  if (options.isQueued && session->numStepsDone() >= loop.numSteps) {
    if (options.speaks())
      tell("note: nothing is left to do: {} has done {} steps, of {}\n", loop.resumed,
           session->numStepsDone(), loop.numSteps);
    return Ended{};
  }
  if (!options.save.empty() && options.speaks())
    TRIREME_RETURN_IF_ERROR(checkSaveFolder(options.save, session->numStepsDone()));
  TRIREME_ASSIGN_OR_RETURN(MetricsFile metrics, openMetrics(options, *session, loop));
  if (options.beginsToSave && options.speaks())
    tell("note: {}: no checkpoint yet, so the run begins with step 1\n", options.save);
  if (!loop.resumed.empty() && options.speaks())
    tell("resuming after step {} from {}\n", session->numStepsDone(), loop.resumed);
  TRIREME_ASSIGN_OR_RETURN(report.loop, train(*session, *data, metrics, loop));
  report.arenas = arenaBytes(session->program());
  report.memory = readProcessMemory();
  const Status written = writeFiles(options, report, *session);
  return Ended{report.loop.interrupted ? kExitInterrupted : kExitOk,
               options.speaks() ? textOf(report, options) : "", written};
}

// Who else there is, as the launcher says it. Null: nobody.
Result<std::unique_ptr<runtime::ProcessWorld>> joinOthers(const RunOptions& options) {
  runtime::Environment environment = runtime::processEnvironment();
  if (!options.rendezvous.empty()) {
    Result<runtime::Environment> there =
        runtime::withRendezvous(std::move(environment), options.rendezvous);
    if (!there.has_value()) return Error(there.error().withContext("--rendezvous"));
    environment = *std::move(there);
  }
  TRIREME_ASSIGN_OR_RETURN(const std::optional<runtime::Launch> launch,
                           runtime::detectLaunch(environment));
  if (!options.rendezvous.empty() && !runtime::hasLauncher(environment))
    return Error(invalidArgument(
        "--rendezvous is for processes of a launcher, and none has started this one: torchrun, "
        "srun and mpirun say which of how many it is; by hand set RANK and WORLD_SIZE"));
  if (!launch) return nullptr;
  return runtime::ProcessWorld::join(*launch, options.timeoutSeconds);
}

// Messages of the session name the rank; others do not know that there are several.
Status withRank(const Status& status, int32_t rank) {
  const std::string name = fmt::format("rank {}", rank);
  return status.message().find(name) == std::string::npos ? status.withContext(name) : status;
}

Result<Ended> runTogether(RunOptions options) {
  options.keepsTrace = !options.trace.empty();
  options.reports = !options.modelFlags.report.empty();
  options.traces = options.keepsTrace || options.reports;
  TRIREME_ASSIGN_OR_RETURN(const auto processes, joinOthers(options));
  if (processes == nullptr) return runRanks(options);
  options.processes = processes.get();
  options.modelFlags.speaks = options.speaks();
  if (!options.speaks()) {
    options.metrics.clear();
    options.trace.clear();
    options.modelFlags.report.clear();
    options.modelFlags.cluster.clear();
    options.modelFlags.stack.clear();
  }
  Result<Ended> ended = runRanks(options);
  Status status = ended.has_value() ? ended->written : ended.error();
  const bool isDone = status.ok();
  if (isDone) status = processes->finish();
  if (status.ok()) return ended;
  status = withRank(status, processes->rank());
  processes->fail(processes->rank(), status);
  if (isDone || !ended.has_value()) return Error(status);
  ended->written = status;
  return ended;
}

// Results come last: where nobody can take them, all else is done.
Result<int> runTraining(RunOptions options) {
  TRIREME_ASSIGN_OR_RETURN(const Ended ended, runTogether(std::move(options)));
  fmt::print("{}", ended.results);
  TRIREME_RETURN_IF_ERROR(ended.written);
  return ended.exitCode;
}

Action addRun(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  addPath(app, "BUNDLE", &options->bundle, "", "Folder that `trireme compile` wrote")->required();
  app.add_option("--data", options->data,
                 "Files of tokens; X.idx: a Megatron dataset with its X.bin")
      ->required()
      ->type_name("FILE");
  addChoice(app, "--tokens", &options->tokens, runtime::tokenTypeName, runtime::TokenType::kI64,
            "What a file is an array of (default: uint8, bytes of text)");
  addChoice(app, "--order", &options->order, runtime::sampleOrderName,
            runtime::SampleOrder::kSequential,
            "Samples: from anywhere, or windows (default: random)");
  addCount(app, "--steps", &options->steps,
           "Stop after step N of the training (default: warmup + decay)");
  addCount(app, "--threads", &options->threads, "Threads per rank (default: 1)");
  addSeconds(app, "--timeout", &options->timeoutSeconds,
             "Longest wait for another rank, seconds (default: 60)", runtime::kMostTimeoutSeconds);

  app.add_flag("--virtual-ranks", options->virtualRanks,
               "All ranks of a bundle for CUDA on one GPU");
  app.add_flag("--no-cuda-graphs", options->noCudaGraphs,
               "Launch the kernels of a bundle for CUDA one by one");
  addSwitch(app, "--time-matmuls", &options->timesMatmuls,
            "On GPUs: time matrix products to choose their algorithms (default: on)");
  addPath(app, "--rendezvous", &options->rendezvous, "HOST:PORT",
          "Where rank 0 of several processes listens (default: its launcher's)");

  const std::string checkpoints = "Checkpoints";
  CLI::Option* save = addPath(app, "--save", &options->save, "DIR",
                              "Save a checkpoint at the end, also after Ctrl-C");
  save->group(checkpoints);
  addCount(app, "--save-every", &options->saveEvery, "And after every N steps")
      ->needs(save)
      ->group(checkpoints);
  addPath(app, "--resume", &options->resume, "PATH",
          "Continue from a checkpoint, or a folder's latest (of --save: if any)")
      ->group(checkpoints);
  app.add_flag("--new-data", options->newData,
               "Continue on other data, or in another order, than before")
      ->needs("--resume")
      ->group(checkpoints);
  addPath(app, "--init-from", &options->modelFlags.initFrom, "PATH",
          "Start from Hugging Face weights: a file, an index or a folder")
      ->group(checkpoints);

  const std::string output = "Output";
  app.add_flag("--summary", options->summary, "Print step time, memory and the loss curve")
      ->group(output);
  app.add_flag("--json", options->json, "Print the summary as JSON")->group(output);
  CLI::Option* cluster = addPath(app, "--cluster", &options->modelFlags.cluster, "NAME|FILE",
                                 "Compare the step time with the one predicted here");
  cluster->group(output);
  addPath(app, "--stack", &options->modelFlags.stack, "NAME|FILE",
          "Software stack of the prediction")
      ->needs(cluster)
      ->group(output);
  addPath(app, "--metrics", &options->metrics, "FILE",
          "Write a JSON line per step to a new file; with --resume, continue it")
      ->group(output);
  addPath(app, "--trace", &options->trace, "FILE", "Write a Perfetto trace of all steps")
      ->group(output);
  addReport(app, &options->modelFlags.report)->group(output);
  return [options] { return runTraining(*options); };
}

}  // namespace

const Command kRunCommand = {
    "run", "Train the model of a bundle",
    "trireme run gpt.bundle --data corpus.txt --steps 1000 --save checkpoints --save-every 100",
    addRun};

}  // namespace trireme::cli
