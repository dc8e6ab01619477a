// How long the partition solvers take (CPU time of one core), on the published cases and on a chain
// of a thousand layers.
//
//   TRIREME_REFERENCE=<folder with cases/> partition_bench
//
// piper/<devices>: BERT-32, 37 layers in 4 tensor degrees and 2 variants, 1920 microbatches, 8 GiB,
// 25 GiB/s. `seconds` is the answer, `published` Piper's own, `x_faster` how many times less CPU
// time than Piper's solver took. Its times come with the case and are of one core of a 2.6 GHz
// Xeon: compare on a machine like that, or run Piper's solver beside this one.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "planner/partition/pipedream.h"
#include "planner/partition/piper.h"

namespace trireme::planner {
namespace {

struct PublishedPiper {
  int64_t devices;
  double answer, cpuSeconds;
};
// Answers and times of Piper's solver (Tarnawski et al., NeurIPS 2021), k = 8 to 1024.
constexpr PublishedPiper kPiper[] = {{8, 0.16585575, 0.04},     {32, 0.04151545, 0.11},
                                     {64, 0.02020055, 0.19},    {128, 0.01012088, 0.35},
                                     {512, 0.0025611278, 3.18}, {1024, 0.0013031795, 14.52}};

Result<spec::ProfileSpec> loadCase(const std::string& name) {
  const char* folder = std::getenv("TRIREME_REFERENCE");
  if (!folder) return Error(unavailable("TRIREME_REFERENCE names no folder of published cases"));
  return spec::loadProfile(std::string(folder) + "/cases/" + name);
}

void piper(benchmark::State& state) {
  const PublishedPiper& published = kPiper[state.range(0)];
  PiperProblem problem;
  const Result<spec::ProfileSpec> profile = loadCase("piper_bert32_a100.json");
  if (!profile.has_value()) return state.SkipWithError(profile.error().message().c_str());
  problem.profile = *profile;
  problem.devices = published.devices;
  problem.microbatches = 1920;
  problem.bandwidth = BytesPerSecond(25.0 * 1073741824.0);
  problem.memory = Bytes(8.0 * 1073741824.0);
  double seconds = 0;
  for (auto _ : state) {
    const Result<PiperPartition> partition = partitionPiper(problem);
    if (!partition.has_value()) return state.SkipWithError(partition.error().message().c_str());
    seconds = partition->time.count();
  }
  state.SetLabel("k=" + std::to_string(published.devices));
  state.counters["seconds"] = seconds;
  state.counters["published"] = published.answer;
  // published CPU time over CPU time of an iteration
  state.counters["x_faster"] =
      benchmark::Counter(published.cpuSeconds, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(piper)->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

void solve(benchmark::State& state, const PipedreamProblem& problem) {
  for (auto _ : state) {
    const Result<PipedreamPartition> partition = partitionPipedream(problem);
    if (!partition.has_value()) return state.SkipWithError(partition.error().message().c_str());
    state.counters["seconds"] = partition->time.count();
  }
}

// Workers on one level at 1.25 GB/s.
void pipedream(benchmark::State& state, const std::string& file, PipedreamForm form) {
  const Result<spec::ProfileSpec> profile = loadCase(file);
  if (!profile.has_value()) return state.SkipWithError(profile.error().message().c_str());
  PipedreamProblem problem;
  problem.profile = *profile;
  problem.form = form;
  problem.levels = {{state.range(0), BytesPerSecond(1.25e9)}};
  solve(state, problem);
}
BENCHMARK_CAPTURE(pipedream, vgg16_sosp19, "pipedream_vgg16.txt", PipedreamForm::kHierarchical)
    ->Arg(16)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pipedream, resnet50_sosp19, "pipedream_resnet50.txt",
                  PipedreamForm::kHierarchical)
    ->Arg(16)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pipedream, resnet50_released, "pipedream_resnet50.txt", PipedreamForm::kReleased)
    ->Arg(16)
    ->Arg(128)
    ->Unit(benchmark::kMillisecond);

// Eight workers to a server, at 16 and 1.25 GB/s.
void pipedreamServers(benchmark::State& state) {
  const Result<spec::ProfileSpec> profile = loadCase("pipedream_resnet50.txt");
  if (!profile.has_value()) return state.SkipWithError(profile.error().message().c_str());
  PipedreamProblem problem;
  problem.profile = *profile;
  problem.levels = {{8, BytesPerSecond(16e9)}, {state.range(0), BytesPerSecond(1.25e9)}};
  solve(state, problem);
}
BENCHMARK(pipedreamServers)->Arg(2)->Arg(128)->Unit(benchmark::kMillisecond);

// Layers that are not alike, on 64 workers.
void pipedreamChain(benchmark::State& state) {
  PipedreamProblem problem;
  for (int64_t i = 0; i < state.range(0); ++i) {
    spec::ProfileVariant variant;
    variant.forward = Seconds(1e-3 * static_cast<double>(1 + i * 7919 % 13));
    variant.weights = Bytes(1e6 * static_cast<double>(1 + i * 104729 % 31));
    problem.profile.layers.push_back(
        {std::to_string(i), "", Bytes(1e6 * static_cast<double>(1 + i * 1299709 % 17)), {variant}});
    if (i > 0)
      problem.profile.edges.push_back(
          {static_cast<int32_t>(i - 1), static_cast<int32_t>(i),
           *problem.profile.layers[static_cast<size_t>(i) - 1].activation});
  }
  problem.levels = {{64, BytesPerSecond(10e9)}};
  solve(state, problem);
}
BENCHMARK(pipedreamChain)->Arg(100)->Arg(1000)->Unit(benchmark::kMillisecond);

// "model name : ..." of the first core.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace
}  // namespace trireme::planner

int main(int argc, char** argv) {
  benchmark::AddCustomContext("processor", trireme::planner::processor());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
