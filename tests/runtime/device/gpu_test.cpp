#include "runtime/device/cuda/gpu.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "runtime/session.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;

std::string openError(const EmulatedGpuOptions& options) {
  EmulatedGpu emulated(options);
  const auto gpu = Gpu::open(emulated.apis(), 0);
  if (gpu.has_value()) return "";
  EXPECT_EQ(gpu.error().code(), StatusCode::kUnavailable);
  return gpu.error().message();
}

TEST(Gpu, SaysWhatIsMissing) {
  EXPECT_EQ(openError({}), "");
  EXPECT_THAT(openError({.numDevices = 0}), HasSubstr("no GPU: CUDA, starting the driver"));
  EXPECT_THAT(openError({.driverVersion = 11080}),
              HasSubstr("the NVIDIA driver is of CUDA 11.8; 12.0 is the oldest that will do"));
  EXPECT_EQ(openError({.capability = 75}),
            "GPU 0 (Emulated GPU): no kernels for a GPU of compute capability 7.5: this build has "
            "code for 8.0, code for 9.0, PTX for 8.0");
  EXPECT_EQ(openError({.capability = 100}), "");
}

// Code runs on GPUs of the same generation that are no older; PTX on all that are no older; what
// is exact on GPUs of its capability.
TEST(Gpu, RunsTheNearestImage) {
  const std::vector<KernelImage> images = {
      {90, false, "exact", true}, {80, false, "a"}, {90, false, "b"}, {80, true, "c"}};
  const auto chosen = [&](int capability) {
    const auto fitting = imagesFor(images, capability, "this build");
    return fitting ? std::string(fitting->front().bytes) : fitting.error().message();
  };
  EXPECT_EQ(chosen(80), "a");
  EXPECT_EQ(chosen(89), "a");
  EXPECT_EQ(chosen(90), "exact");
  EXPECT_EQ(chosen(91), "b");
  EXPECT_EQ(chosen(100), "c");
  EXPECT_EQ(chosen(75),
            "no kernels for a GPU of compute capability 7.5: this build has code for 9.0 alone, "
            "code for 8.0, code for 9.0, PTX for 8.0");
  EXPECT_FALSE(imagesFor({{90, true, "ptx", true}}, 100, "the bundle").has_value());
}

// Code of CUDA 13 on a driver of CUDA 12: the driver compiles the PTX.
TEST(Gpu, TakesTheNextImageWhereTheDriverRefusesOne) {
  const auto loads = [](const std::vector<std::string>& refused) {
    EmulatedGpu emulated({.refusedImages = refused});
    const auto gpu = Gpu::open(emulated.apis(), 0);
    return gpu.has_value() ? emulated.libraryImage() : gpu.error().message();
  };
  EXPECT_EQ(loads({}), "library sm_90");
  EXPECT_EQ(loads({"library sm_90"}), "library PTX");
  EXPECT_THAT(loads({"library sm_90", "library PTX"}),
              AllOf(HasSubstr("the driver, of CUDA 13.0, takes the kernels in no form; CUDA, code "
                              "for 9.0: "),
                    HasSubstr("; CUDA, PTX for 8.0: ")));
}

TEST(Gpu, AMachineWithoutADriverSaysSo) {
  const auto driver = loadDriver();
  if (driver.has_value()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(driver.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(driver.error().message(), HasSubstr("no NVIDIA driver: libcuda.so.1"));
  EXPECT_EQ(loadApis(false).error().message(), driver.error().message());
}

std::string sessionError(const TinyOptions& tiny, SessionOptions options,
                         const EmulatedGpuOptions& emulation = {}) {
  EmulatedGpu emulated(emulation);
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle(tiny);
  bundle.target.arch = "cuda:sm_90";
  options.cudaApis = &apis;
  const auto session = Session::create(std::move(bundle), options);
  EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  return session.has_value() ? "" : session.error().message();
}

// Which of a bundle's images a GPU loads, or why none.
std::string loaded(const std::string& arch, int capability, bool hasPtxas = true,
                   const std::vector<std::string>& refused = {}) {
  EmulatedGpu emulated({.capability = capability, .refusedImages = refused});
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
  bundle.target.arch = arch;
  const std::vector<program::GpuTarget> targets = *program::parseGpuTargets(arch);
  bundle.ptx = fmt::format("PTX of {}", program::ptxTarget(targets).name);
  for (const program::GpuTarget& target : targets)
    if (hasPtxas) bundle.cubins.push_back({std::string(target.name), std::string(target.name)});
  const auto session =
      Session::create(std::move(bundle), {.virtualRanks = true, .cudaApis = &apis});
  if (!session.has_value()) {
    EXPECT_EQ(session.error().code(), StatusCode::kUnavailable);
    return session.error().message();
  }
  const std::vector<std::string> images = emulated.generatedImages();
  return images.size() == 1 ? images[0] : fmt::format("{} images", images.size());
}

TEST(GpuSession, LoadsTheBestCodeOfTheBundle) {
  const std::string two = "cuda:sm_80,sm_90", all = "cuda:sm_80,sm_90,sm_90a";
  EXPECT_EQ(loaded(two, 80), "sm_80");
  EXPECT_EQ(loaded(two, 86), "sm_80");
  EXPECT_EQ(loaded(two, 89), "sm_80");
  EXPECT_EQ(loaded(two, 90), "sm_90");
  EXPECT_EQ(loaded(two, 100), "PTX of sm_80");
  EXPECT_EQ(loaded(two, 90, false), "PTX of sm_80");
  EXPECT_EQ(loaded(all, 90), "sm_90a");
  EXPECT_EQ(loaded(all, 120), "PTX of sm_80");
  EXPECT_EQ(loaded("cuda:sm_80,sm_90a", 90), "sm_90a");
  EXPECT_EQ(loaded("cuda:sm_80,sm_90a", 90, false), "PTX of sm_80");
  EXPECT_EQ(loaded("cuda:sm_90a", 90), "sm_90a");
  EXPECT_EQ(loaded(two, 90, true, {"sm_90"}), "PTX of sm_80");
  EXPECT_THAT(loaded("cuda:sm_90", 90, true, {"sm_90", "PTX of sm_90"}),
              HasSubstr("takes the generated kernels in no form"));
  EXPECT_EQ(loaded("cuda:sm_90a", 90, false), "PTX of sm_90a");
}

TEST(GpuSession, AGpuThatTheBundleIsNotForIsToldWhichWouldBe) {
  EXPECT_EQ(loaded("cuda:sm_90", 86),
            "the bundle is for cuda:sm_90 (compute capability 9.0 and later), and GPU 0 (Emulated "
            "GPU) has 8.6; trireme compile --target cuda:sm_80,sm_90 makes one that runs there as "
            "well");
  EXPECT_THAT(loaded("cuda:sm_90a", 100),
              HasSubstr("(compute capability 9.0 alone), and GPU 0 (Emulated GPU) has 10.0; "
                        "trireme compile --target cuda:sm_90,sm_90a makes"));
  EXPECT_THAT(loaded("cuda:sm_90,sm_90a", 80),
              HasSubstr("(compute capability 9.0 and later, 9.0 alone)"));
  EXPECT_THAT(loaded("cuda:sm_80", 75), HasSubstr("GPU 0 (Emulated GPU): no kernels for a GPU"));
}

TEST(GpuSession, RefusesWhatItCannotDo) {
  const TinyOptions tiny{.tp = 1, .dp = 1};
  EXPECT_EQ(sessionError(tiny, {.virtualRanks = true}), "");
  EXPECT_THAT(sessionError(tiny, {}), HasSubstr("nobody has loaded NCCL"));
  EXPECT_THAT(sessionError(tiny, {.useReference = true}), HasSubstr("run on the host"));
  EXPECT_THAT(sessionError(tiny, {.threadsPerRank = 2}),
              HasSubstr("threads per rank are for hosts"));
  EXPECT_THAT(sessionError(tiny, {.virtualRanks = true}, {.memoryBytes = 64}),
              HasSubstr("on Emulated GPU, of which 64 B are free: "));
}

TEST(GpuSession, VirtualRanksAreForGpus) {
  const auto session = Session::create(tinyBundle({}), {.virtualRanks = true});
  ASSERT_FALSE(session.has_value());
  EXPECT_THAT(session.error().message(), HasSubstr("virtual ranks share a GPU"));
}

TEST(GpuSession, CudaGraphsAreForGpus) {
  const auto session = Session::create(tinyBundle({}), {.cudaGraphs = false});
  ASSERT_FALSE(session.has_value());
  EXPECT_THAT(session.error().message(), HasSubstr("CUDA graphs are for GPUs"));
}

// The hand derivation of Session.AStepOfTheTinyProgramMatchesTheHandDerivation, on the GPU.
TEST(GpuSession, AStepOfTheTinyProgramMatchesTheHandDerivation) {
  for (const bool sharded : {true, false})
    for (uint64_t seed : {1, 2, 3}) {
      EmulatedGpu emulated({.seed = seed});
      const Apis apis = emulated.apis();
      program::Bundle bundle = tinyBundle({.sharded = sharded});
      bundle.target.arch = "cuda:sm_90";
      auto session = Session::create(std::move(bundle), {.virtualRanks = true, .cudaApis = &apis});
      ASSERT_TRUE(session.has_value()) << session.error().message();
      CountingData data;
      const auto result = (*session)->step(data);
      ASSERT_TRUE(result.has_value()) << result.error().message();
      EXPECT_NEAR(result->loss, std::log(9) - 9, 1e-12);
      EXPECT_NEAR(result->gradNorm, 54 * std::sqrt(30), 1e-9);
      for (const NamedTensor& tensor : (*session)->gatherGradients())
        EXPECT_EQ(tensor.values, std::vector<double>(kTinyWidth, 54));
      for (const NamedTensor& tensor : (*session)->gatherParameters())
        for (double w : tensor.values) EXPECT_NEAR(w, 0.45, 1e-7);
      session->reset();
      EXPECT_EQ(emulated.faults(), std::vector<std::string>());
      EXPECT_EQ(emulated.numLiveObjects(), 0);
    }
}

// The newest that the driver can serve.
TEST(Gpu, TakesTheCublasLtOfItsDriver) {
  const auto names = [](int driver) {
    const std::vector<const char*> list = cublasLtNames(driver);
    return std::vector<std::string>(list.begin(), list.end());
  };
  EXPECT_EQ(names(12080), std::vector<std::string>({"libcublasLt.so.12"}));
  EXPECT_EQ(names(13000), std::vector<std::string>({"libcublasLt.so.13", "libcublasLt.so.12"}));
}

// A rank has a stream for computation and six for communication, which goes first.
TEST(GpuSession, CommunicationGoesBeforeComputation) {
  EmulatedGpu emulated;
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle({});
  bundle.target.arch = "cuda:sm_90";
  const int ranks = bundle.program.numRanks();
  const auto session =
      Session::create(std::move(bundle), {.virtualRanks = true, .cudaApis = &apis});
  ASSERT_TRUE(session.has_value()) << session.error().message();
  const std::map<int, int> streams = emulated.numStreamsOf();
  ASSERT_EQ(streams.size(), 2U);
  EXPECT_EQ(streams.at(0), ranks);
  EXPECT_EQ(streams.begin()->second, 6 * ranks);
  EXPECT_LT(streams.begin()->first, 0);
}

// Weights, moments and position go to the host and back; then both make the same step.
TEST(GpuSession, CheckpointsGoFromTheGpuToTheHostAndBack) {
  const std::string path = ::testing::TempDir() + "/gpu_test_checkpoint.safetensors";
  EmulatedGpu emulated;
  const Apis apis = emulated.apis();
  program::Bundle onGpu = tinyBundle({});
  onGpu.target.arch = "cuda:sm_90";
  auto gpu = Session::create(std::move(onGpu), {.virtualRanks = true, .cudaApis = &apis});
  auto host = Session::create(tinyBundle({}), {.useReference = true});
  ASSERT_TRUE(gpu.has_value() && host.has_value());
  const auto expectSame = [&] {
    for (const auto gather : {&Session::gatherParameters, &Session::gatherComputeParameters}) {
      const auto here = ((**gpu).*gather)(), there = ((**host).*gather)();
      ASSERT_EQ(here.size(), 6u);
      ASSERT_EQ(there.size(), 6u);
      for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(here[i].values, there[i].values);
    }
  };
  CountingData data;
  ASSERT_TRUE((*gpu)->step(data).has_value());
  EXPECT_EQ((*gpu)->saveCheckpoint(path).message(), "");
  EXPECT_EQ((*host)->loadCheckpoint(path).message(), "");
  expectSame();
  ASSERT_TRUE((*host)->step(data).has_value());
  EXPECT_EQ((*host)->saveCheckpoint(path).message(), "");
  EXPECT_EQ((*gpu)->loadCheckpoint(path).message(), "");
  EXPECT_EQ((*gpu)->numStepsDone(), 2);
  expectSame();
  std::remove(path.c_str());
}

// A rank that stops is named, and its peers do not hang.
TEST(GpuSession, ARankThatFailsIsNamed) {
  class StopsRankOne final : public FaultInjector {
   public:
    Fault before(int32_t rank, const program::TaskRecord&, int32_t instruction, int32_t) override {
      return rank == 1 && instruction == 2 ? Fault::kFail : Fault::kNone;
    }
  };
  StopsRankOne faults;
  EmulatedGpu emulated;
  const Apis apis = emulated.apis();
  program::Bundle bundle = tinyBundle({});
  bundle.target.arch = "cuda:sm_90";
  SessionOptions options{.timeoutSeconds = 20, .faults = &faults};
  options.virtualRanks = true;
  options.cudaApis = &apis;
  auto session = Session::create(std::move(bundle), options);
  ASSERT_TRUE(session.has_value()) << session.error().message();
  CountingData data;
  const auto result = (*session)->step(data);
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message(), HasSubstr("step 1, rank 1"));
}

// A launch that never ends: whichever it is, a rank and its instruction are named within the
// timeout, no rank waits for ever, and nobody waits for the GPU after that, not even to free what
// it holds.
TEST(GpuSession, AStreamThatHangsIsNamed) {
  for (const int64_t launch : {0, 2, 5}) {
    EmulatedGpu emulated({.hangsAtLaunch = launch});
    const Apis apis = emulated.apis();
    program::Bundle bundle = tinyBundle({});
    bundle.target.arch = "cuda:sm_90";
    auto session = Session::create(
        std::move(bundle), {.timeoutSeconds = 0.3, .virtualRanks = true, .cudaApis = &apis});
    ASSERT_TRUE(session.has_value()) << session.error().message();
    CountingData data;
    const auto result = (*session)->step(data);
    ASSERT_FALSE(result.has_value()) << launch;
    EXPECT_EQ(result.error().code(), StatusCode::kUnavailable);
    EXPECT_THAT(result.error().message(),
                ::testing::ContainsRegex("step 1, rank [0-7]: .*instruction"));
    EXPECT_THAT(result.error().message(), HasSubstr("the device has not completed it in 0.3"));
    session->reset();
    EXPECT_EQ(emulated.faults(), std::vector<std::string>());
    EXPECT_GT(emulated.numLiveObjects(), 0);
  }
}

// The events of a trace on the GPU are those of the host, rank by rank and stream by stream; each
// begins after the one before it on its stream, within the step, whose times the two clocks agree
// on.
TEST(GpuSession, TracesShowWhenTheGpuWorked) {
  const auto trace = [](bool onGpu, const Apis* apis, double& seconds) {
    program::Bundle bundle = tinyBundle({});
    if (onGpu) bundle.target.arch = "cuda:sm_90";
    auto session = Session::create(std::move(bundle),
                                   {.trace = true, .virtualRanks = onGpu, .cudaApis = apis});
    EXPECT_TRUE(session.has_value()) << session.error().message();
    CountingData data;
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < 2; ++step) EXPECT_TRUE((*session)->step(data).has_value());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return (*session)->takeTrace();
  };
  EmulatedGpu emulated;
  const Apis apis = emulated.apis();
  double hostSeconds = 0, gpuSeconds = 0;
  const auto host = trace(false, nullptr, hostSeconds), gpu = trace(true, &apis, gpuSeconds);
  using Key = std::tuple<int32_t, int64_t, int, int>;  // rank, step, stream, kind
  const auto keys = [](const std::vector<program::TraceEvent>& events) {
    std::vector<Key> result;
    for (const program::TraceEvent& e : events)
      result.emplace_back(e.rank, e.step, static_cast<int>(e.stream), static_cast<int>(e.kind));
    std::sort(result.begin(), result.end());
    return result;
  };
  EXPECT_EQ(keys(gpu), keys(host));
  ASSERT_FALSE(gpu.empty());
  std::map<std::pair<int32_t, int>, double> ends;
  double first = 1e9, last = 0;
  for (const program::TraceEvent& e : gpu) {
    double& end = ends[{e.rank, static_cast<int>(e.stream)}];
    EXPECT_GE(e.beginSeconds, end - 1e-6);  // times of the GPU are floats of milliseconds
    EXPECT_GE(e.endSeconds, e.beginSeconds);
    end = e.endSeconds;
    first = std::min(first, e.beginSeconds);
    last = std::max(last, e.endSeconds);
  }
  EXPECT_GT(first, 0);
  EXPECT_LE(last - first, gpuSeconds + 1e-3);
}

}  // namespace
}  // namespace trireme::runtime::cuda
