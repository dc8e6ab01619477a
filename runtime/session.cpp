#include "runtime/session.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "ir/base/format.h"
#include "runtime/comm/timeout.h"
#include "runtime/device/cuda/cuda_backend.h"
#include "runtime/device/host_device.h"
#include "runtime/executor/host_memory.h"
#include "runtime/session_impl.h"
#include "runtime/state/elements.h"
#include "runtime/state/initialize.h"

namespace trireme::runtime {
namespace {

Status checkOptions(const SessionOptions& options) {
  if (options.threadsPerRank < 1) return invalidArgument("a rank needs at least one thread");
  TRIREME_RETURN_IF_ERROR(checkTimeout(options.timeoutSeconds));
  return {};
}

// The limits of message tags, and what is indexed before the ranks are resolved.
Status checkProgram(const program::Program& program) {
  if (program.ranks.empty()) return invalidArgument("the program has no ranks");
  if (program.numRanks() >= 1 << 20) return invalidArgument("more than 2^20 ranks");
  if (program.training.numMicrobatches >= 1 << 24)
    return invalidArgument("more than 2^24 microbatches");
  for (const program::Group& group : program.groups)
    for (int32_t rank : group.ranks)
      if (rank < 0 || rank >= program.numRanks())
        return invalidArgument(fmt::format("a group has a rank {}", rank));
  for (const program::RankInfo& info : program.ranks)
    for (int32_t group : info.group)
      if (group < 0 || static_cast<size_t>(group) >= program.groups.size())
        return invalidArgument(fmt::format("no group {}", group));
  return {};
}

Status checkRoles(const program::Program& program) {
  for (int32_t r = 0; r < program.numRanks(); ++r) {
    const int32_t role = program.ranks[static_cast<size_t>(r)].role;
    if (role < 0 || static_cast<size_t>(role) >= program.roles.size())
      return invalidArgument(fmt::format("rank {}: no role {}", r, role));
  }
  return {};
}

// There was enough for all, so a limit on the process is in the way.
std::string cannotAllocate(int32_t rank, const std::optional<Bytes>& available) {
  return fmt::format("rank {}{}", rank,
                     available ? fmt::format(" ({} are available; is there a limit, ulimit -v?)",
                                             formatBytes(*available))
                               : "");
}

std::unique_ptr<ThreadWorld> makeWorld(const program::Program& program, double timeoutSeconds) {
  std::vector<std::vector<int32_t>> groups;
  for (const program::Group& group : program.groups) groups.push_back(group.ranks);
  return std::make_unique<ThreadWorld>(program.numRanks(), groups, timeoutOf(timeoutSeconds));
}

}  // namespace

// Ranks take leave of each other on their own threads, all at once.
Session::Impl::~Impl() {
  for (const Worker& worker : workers)
    if (worker.setup.device != nullptr) worker.setup.device->quiesce();
  threads.run([&](int32_t index) {
    Worker& worker = workers[static_cast<size_t>(index)];
    worker.executor.reset();
    worker.setup.comm.reset();
  });
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(program::Bundle bundle, SessionOptions options) {
  TRIREME_RETURN_IF_ERROR(checkOptions(options));
  TRIREME_RETURN_IF_ERROR(checkProgram(bundle.program));
  auto impl = std::make_unique<Impl>();
  impl->bundle = std::move(bundle);
  impl->options = std::move(options);
  impl->progress.lossScaling.scale = impl->bundle.program.training.initialLossScale;
  TRIREME_RETURN_IF_ERROR(impl->load());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Status Session::Impl::load() {
  const program::Program& program = bundle.program;
  TRIREME_ASSIGN_OR_RETURN(tensors, logicalTensors(program));
  TRIREME_RETURN_IF_ERROR(checkRoles(program));
  TRIREME_RETURN_IF_ERROR(openWorld());
  const std::optional<Bytes> available = options.memory ? options.memory : availableMemory();
  if (Status status = loadRanks(available); !status.ok()) return shared(std::move(status));
  TRIREME_RETURN_IF_ERROR(agreeOnProgram());
  const auto start = std::chrono::steady_clock::now();
  threads.run([&](int32_t index) {
    const int32_t rank = firstRank + index;
    const Status status = prepare(rank, start);
    if (!status.ok()) world->fail(rank, status);
    statuses[static_cast<size_t>(index)] = status;
  });
  if (others != nullptr) TRIREME_RETURN_IF_ERROR(statuses.front());
  return world->failed() ? failureOfOthers() : Status();
}

Status Session::Impl::openWorld() {
  const program::Program& program = bundle.program;
  if (options.processes == nullptr) {
    threadWorld = makeWorld(program, options.timeoutSeconds);
    world = threadWorld.get();
    return {};
  }
  world = options.processes;
  others = std::make_unique<Others>(*options.processes);
  firstRank = options.processes->rank();
  if (options.virtualRanks)
    return invalidArgument("virtual ranks are threads of one process, and several were started");
  if (options.processes->numProcesses() == program.numRanks()) return {};
  return invalidArgument(fmt::format(
      "the bundle has {} ranks, and {} started {} processes: start one per rank",
      program.numRanks(), options.processes->launch().launcher, options.processes->numProcesses()));
}

Status Session::Impl::loadRanks(const std::optional<Bytes>& available) {
  const program::Program& program = bundle.program;
  const int32_t numRanks = others != nullptr ? 1 : program.numRanks();
  TRIREME_RETURN_IF_ERROR(openBackend(available));
  TRIREME_RETURN_IF_ERROR(backend->checkMemory(program));
  for (int32_t r = firstRank; r < firstRank + numRanks; ++r) {
    const int32_t role = program.ranks[static_cast<size_t>(r)].role;
    Result<Arena> arena = Arena::allocate(program.roles[static_cast<size_t>(role)].arenaBytes);
    if (!arena.has_value()) return arena.error().withContext(cannotAllocate(r, available));
    TRIREME_ASSIGN_OR_RETURN(RankProgram resolved, resolveRank(program, r, arena->data()));
    arenas.push_back(*std::move(arena));
    ranks.push_back(std::move(resolved));
  }
  statuses.resize(ranks.size());
  counters.resize(ranks.size());
  workers.resize(ranks.size());
  return threads.start(numRanks);
}

Status Session::Impl::openBackend(const std::optional<Bytes>& available) {
  if (program::isGpuArch(bundle.target.arch)) return openCuda();
  if (options.virtualRanks)
    return invalidArgument(
        fmt::format("virtual ranks share a GPU, and the bundle is for {}: its ranks are threads of "
                    "this process anyhow",
                    bundle.target.arch.empty() ? "hosts" : bundle.target.arch));
  if (!options.cudaGraphs)
    return invalidArgument("CUDA graphs are for GPUs, and the bundle is for hosts: there are none");
  TRIREME_ASSIGN_OR_RETURN(SegmentCode code, SegmentCode::load(bundle, options.useReference));
  HostOptions hostOptions{options.threadsPerRank, available};
  if (others != nullptr) hostOptions.onlyRank = firstRank;
  backend = std::make_unique<HostBackend>(std::move(code), hostOptions);
  return {};
}

Status Session::Impl::openCuda() {
  if (options.threadsPerRank != 1)
    return invalidArgument("threads per rank are for hosts, and the bundle is for a GPU");
  if (options.useReference)
    return invalidArgument("the reference kernels run on the host, and the bundle is for a GPU");
  cuda::Apis apis;
  if (options.cudaApis != nullptr) {
    apis = *options.cudaApis;
  } else {
    const bool withNccl = bundle.program.numRanks() > 1 && !options.virtualRanks;
    TRIREME_ASSIGN_OR_RETURN(apis, cuda::loadApis(withNccl));
  }
  cuda::CudaOptions cudaOptions;
  cudaOptions.virtualRanks = options.virtualRanks;
  cudaOptions.timeoutSeconds = options.timeoutSeconds;
  cudaOptions.graphs = options.cudaGraphs;
  cudaOptions.firstRank = firstRank;
  cudaOptions.numRanks = others != nullptr ? 1 : bundle.program.numRanks();
  if (others != nullptr) cudaOptions.firstOnMachine = options.processes->launch().rankOnMachine;
  cudaOptions.tuning = {options.timesMatmuls, options.cacheFolder};
  TRIREME_ASSIGN_OR_RETURN(backend, cuda::CudaBackend::open(apis, bundle, cudaOptions));
  return {};
}

// On the rank's thread, so that its pages and its pool belong to it.
Status Session::Impl::prepare(int32_t rank, std::chrono::steady_clock::time_point start) {
  Worker& worker = workerOf(rank);
  const RankProgram& image = ranks[indexOf(rank)];
  TRIREME_ASSIGN_OR_RETURN(worker.setup, backend->prepare(image, world->communicator(rank)));
  if (options.trace) worker.trace = std::make_unique<TraceRecorder>(rank, start);
  ExecutorContext context;
  context.device = worker.setup.device.get();
  context.comm = worker.setup.comm.get();
  context.trace = worker.trace.get();
  context.faults = options.faults;
  context.timeoutSeconds = options.timeoutSeconds;
  worker.executor = std::make_unique<Executor>(context);
  initializeParameters(image);
  return storeWeights(rank);
}

Result<StepResult> Session::step(DataSource& data) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  const auto begin = std::chrono::steady_clock::now();
  impl_->threads.run([&](int32_t index) { impl_->runRank(impl_->firstRank + index, data); });
  const auto end = std::chrono::steady_clock::now();
  if (impl_->world->failed()) {
    // Of several processes each tells its own end of it.
    const bool tellsOwn = impl_->others != nullptr && !impl_->statuses.front().ok();
    impl_->failure = tellsOwn ? impl_->statuses.front() : impl_->failureOfOthers();
    return Error(impl_->failure);
  }
  Result<StepResult> collected = impl_->collect();
  if (!collected.has_value()) {
    impl_->failure = collected.error();
    return collected;
  }
  StepResult result = *collected;
  result.seconds = std::chrono::duration<double>(end - begin).count();
  ++impl_->progress.stepsDone;
  impl_->progress.data = data.identity();
  return result;
}

Status Session::checkData(DataSource& data) {
  std::vector<Status> checked(impl_->workers.size());
  const int64_t step = impl_->progress.stepsDone;
  impl_->threads.run([&](int32_t index) {
    const auto i = static_cast<size_t>(index);
    checked[i] = impl_->workers[i].executor->checkData(step, data);
    if (!checked[i].ok())
      checked[i] = checked[i].withContext(
          fmt::format("step {}, rank {}", step + 1, impl_->firstRank + index));
  });
  for (const Status& status : checked) TRIREME_RETURN_IF_ERROR(status);
  return {};
}

void Session::Impl::runRank(int32_t rank, DataSource& data) {
  Worker& worker = workerOf(rank);
  Status status = worker.executor->runStep(progress.stepsDone, data);
  if (status.ok()) status = endTogether(*worker.setup.comm);
  if (!status.ok()) {
    status = status.withContext(fmt::format("step {}, rank {}", progress.stepsDone + 1, rank));
    worker.setup.comm->fail(status);
  }
  counters[indexOf(rank)] = worker.executor->counters();
  statuses[indexOf(rank)] = std::move(status);
}

// So that a rank which stops in its last instructions, where no peer waits for it, is missed too.
// Processes exchange their results instead.
Status Session::Impl::endTogether(Communicator& comm) {
  if (others != nullptr || bundle.program.numRanks() == 1) return {};
  const auto said = comm.exchange("");
  return said.has_value() ? Status() : said.error().withContext("after the last instruction");
}

Result<StepResult> Session::Impl::collect() {
  const program::Training& training = bundle.program.training;
  StepResult result;
  bool hasLoss = false;
  result.step = progress.stepsDone;
  result.learningRate = learningRateAt(training, progress.stepsDone);
  // The step's program has summed the losses over the replicas.
  for (const RankProgram& rank : ranks)
    if (rank.role->loss >= 0 && rank.info.tpIndex == 0 && rank.info.dpIndex == 0) {
      TRIREME_ASSIGN_OR_RETURN(const auto loss, fetchDoubles(rank, rank.role->loss));
      result.loss = loss[0];
      hasLoss = true;
    }
  if (const program::Role& first = *ranks.front().role; first.squares >= 0) {
    TRIREME_ASSIGN_OR_RETURN(const auto squares, fetchDoubles(ranks.front(), first.squares));
    result.gradNorm = gradientNorm(squares.data(), static_cast<int64_t>(squares.size()));
  }
  TRIREME_RETURN_IF_ERROR(collectLossScaling(result));
  TRIREME_RETURN_IF_ERROR(exchangeResult(result, hasLoss));
  result.loss /= static_cast<double>(training.globalBatchSize * training.sequenceLength);
  return result;
}

// What the ranks have made of it in this step; they agree.
Status Session::Impl::collectLossScaling(StepResult& result) {
  if (ranks.front().lossScaling() == nullptr) return {};
  TRIREME_ASSIGN_OR_RETURN(const program::LossScaling after, fetchLossScaling(ranks.front()));
  const program::LossScaling before = std::exchange(progress.lossScaling, after);
  result.gradNorm /= before.scale;
  result.scaled = ScaledStep{before.scale, after.skippedSteps > before.skippedSteps,
                             static_cast<int64_t>(after.skippedSteps)};
  return {};
}

std::vector<NamedTensor> Session::Impl::gather(StateKind kind) const {
  const TrainingState state = trainingState();
  const DType type = storedType(state, kind);
  std::vector<NamedTensor> result;
  if (!fetchState(kind).ok()) return result;
  std::vector<char> bytes;
  for (const LogicalTensor& tensor : tensors) {
    const int64_t count = tensor.elements();
    bytes.assign(static_cast<size_t>(count * byteSize(type)), 0);
    if (!gatherTensor(state, tensor, kind, bytes.data()).ok()) return {};
    if (state.others != nullptr && !state.others->gathersHere()) continue;
    NamedTensor& named = result.emplace_back();
    named.name = tensor.name;
    named.dims = tensor.dims;
    for (int64_t i = 0; i < count; ++i) named.values.push_back(loadElement(bytes.data(), type, i));
  }
  return result;
}

int64_t Session::numStepsDone() const { return impl_->progress.stepsDone; }
const std::string& Session::trainedOn() const { return impl_->progress.data; }

const std::vector<std::string>& Session::changedSettings() const { return impl_->progress.changes; }
const program::Program& Session::program() const { return impl_->bundle.program; }
const std::vector<Status>& Session::rankStatuses() const { return impl_->statuses; }
const std::vector<RankCounters>& Session::counters() const { return impl_->counters; }

std::vector<std::string> Session::notes() const {
  std::vector<std::string> notes;
  for (const Impl::Worker& worker : impl_->workers)
    notes.insert(notes.end(), worker.setup.notes.begin(), worker.setup.notes.end());
  return notes;
}

std::vector<NamedTensor> Session::gatherParameters() const {
  return impl_->gather(StateKind::kMaster);
}
std::vector<NamedTensor> Session::gatherComputeParameters() const {
  return impl_->gather(StateKind::kParameter);
}
std::vector<NamedTensor> Session::gatherGradients() const {
  return impl_->gather(StateKind::kGradient);
}

std::vector<program::TraceEvent> Session::takeTrace() {
  std::vector<program::TraceEvent> all;
  for (Impl::Worker& worker : impl_->workers) {
    if (worker.trace == nullptr) continue;
    const std::vector<program::TraceEvent> events = worker.trace->take();
    all.insert(all.end(), events.begin(), events.end());
  }
  return all;
}

}  // namespace trireme::runtime
