// Products of four ranks, two stages with two replicas each: one that all have, and a second one of
// the last stage. Both are timed by the lowest rank that has them, over three algorithms, of which
// each runs once to warm up and five times for the clock: 18 runs. Then every rank runs each of its
// products once: 6 runs.
#include "runtime/device/cuda/matmul_tuning.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/comm/process_world.h"
#include "runtime/device/cuda/matmul_cache.h"
#include "runtime/session.h"
#include "tests/runtime/comm/join_processes.h"
#include "tests/runtime/comm/run_ranks.h"
#include "tests/runtime/device/extra_segment.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;
using trireme::testing::EmulatedProduct;
namespace fs = std::filesystem;

constexpr size_t kRuns = 18;      // to time a product
constexpr size_t kRehearsed = 6;  // of all ranks, before the first step

constexpr int64_t kTokens = 6, kIn = 5;

// To the forward pass: y[t, out] = x[t, in] w[out, in]^T, once; y at 64 bytes behind a multiple of
// 256, the others at 128.
void addProduct(program::Program& program, program::Role& role, int64_t out) {
  program::Segment segment{"product",
                           {{DType::kF32, {kTokens, 1, kIn}},
                            {DType::kF32, {out, kIn}},
                            {DType::kF32, {kTokens, 1, out}}},
                           {false, false, false},
                           {}};
  segment.ops.push_back({program::OpKind::kMatmul, {}, {0, 1}, {2}});
  addSegment(program, role, segment, {128, 128, 64});
}

program::Bundle makeBundle(int32_t numMicrobatches = 1) {
  program::Bundle bundle = tinyBundle({.tp = 1, .dp = 2, .numMicrobatches = numMicrobatches});
  bundle.target.arch = "cuda:sm_90";
  program::Program& program = bundle.program;
  for (program::Role& role : program.roles) addProduct(program, role, 7);
  addProduct(program, program.roles[1], 3);
  return bundle;
}

struct TuningOutcome {
  std::string error;
  std::vector<std::string> notes;
  // Products before the first step, and of it.
  std::vector<EmulatedProduct> timed, rehearsed, trained;
};

class MatmulTuningTest : public ::testing::Test {
 protected:
  MatmulTuningTest()
      : folder_(
            (fs::temp_directory_path() / ("trireme-tuning-" + std::to_string(getpid()))).string()) {
  }
  ~MatmulTuningTest() override { fs::remove_all(folder_); }

  static TuningOutcome run(const EmulatedGpuOptions& emulation, SessionOptions options) {
    EmulatedGpu emulated(emulation);
    const Apis apis = emulated.apis();
    options.virtualRanks = true;
    options.cudaApis = &apis;
    TuningOutcome outcome;
    {
      auto session = Session::create(makeBundle(), options);
      outcome.timed = emulated.products();
      if (!session.has_value()) {
        outcome.error = session.error().message();
      } else {
        outcome.notes = (*session)->notes();
        CountingData data;
        EXPECT_TRUE((*session)->step(data).has_value());
        outcome.trained = emulated.products();
        outcome.trained.erase(outcome.trained.begin(),
                              outcome.trained.begin() + std::ssize(outcome.timed));
        EXPECT_GE(outcome.timed.size(), kRehearsed);
        for (size_t i = 0; i < kRehearsed && !outcome.timed.empty(); ++i) {
          outcome.rehearsed.push_back(outcome.timed.back());
          outcome.timed.pop_back();
        }
      }
    }
    EXPECT_EQ(emulated.faults(), std::vector<std::string>());
    EXPECT_EQ(emulated.numLiveObjects(), 0);
    return outcome;
  }
  TuningOutcome runKept(const EmulatedGpuOptions& emulation) const {
    return run(emulation, {.timesMatmuls = true, .cacheFolder = folder_});
  }

  static std::set<int64_t> algorithmsOf(const std::vector<EmulatedProduct>& products) {
    std::set<int64_t> algorithms;
    for (const EmulatedProduct& product : products) algorithms.insert(product.algorithm);
    return algorithms;
  }
  std::string onlyFile() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files.front();
  }

  std::string folder_;
};

using Algorithms = std::set<int64_t>;

TEST_F(MatmulTuningTest, AllRanksRunTheFastestWhichOneOfThemTimed) {
  const TuningOutcome outcome =
      run({.matmulSeconds = {3, 1, 2}}, {.timesMatmuls = true, .cacheFolder = ""});
  EXPECT_EQ(outcome.error, "");
  EXPECT_TRUE(outcome.notes.empty());
  ASSERT_EQ(outcome.timed.size(), 2 * kRuns);
  std::set<void*> streams, ofFirst;
  for (size_t i = 0; i < outcome.timed.size(); ++i)
    (i < kRuns ? ofFirst : streams).insert(outcome.timed[i].stream);
  EXPECT_EQ(ofFirst.size(), 1u);
  EXPECT_EQ(streams.size(), 1u);
  EXPECT_EQ(outcome.timed.front().m, 7);
  EXPECT_EQ(outcome.timed.back().m, 3);
  EXPECT_EQ(outcome.trained.size(), 6u);
  EXPECT_EQ(algorithmsOf(outcome.trained), Algorithms{1});
  EXPECT_EQ(algorithmsOf(outcome.rehearsed), Algorithms{1});
}

// Timed, the first of equal ones.
TEST_F(MatmulTuningTest, WithoutTimingTheHeuristicsFirstChoiceRuns) {
  const TuningOutcome outcome = run({.matmulSeconds = {3, 1, 2}}, {});
  EXPECT_EQ(outcome.error, "");
  EXPECT_TRUE(outcome.timed.empty());
  EXPECT_EQ(algorithmsOf(outcome.trained), Algorithms{0});
  EXPECT_EQ(algorithmsOf(outcome.rehearsed), Algorithms{0});
  EXPECT_EQ(algorithmsOf(run({.matmulSeconds = {3, 1, 1}}, {.timesMatmuls = true}).trained),
            Algorithms{1});
}

// The second run would choose otherwise, if it timed.
TEST_F(MatmulTuningTest, ASecondRunReadsTheFileAndTimesNothing) {
  EXPECT_EQ(runKept({.matmulSeconds = {3, 1, 2}}).timed.size(), 2 * kRuns);
  const TuningOutcome second = runKept({.matmulSeconds = {1, 2, 3}});
  EXPECT_EQ(second.error, "");
  EXPECT_TRUE(second.notes.empty());
  EXPECT_TRUE(second.timed.empty());
  EXPECT_EQ(algorithmsOf(second.trained), Algorithms{1});
}

TEST_F(MatmulTuningTest, AnotherVersionOfCublasHasAFileOfItsOwn) {
  runKept({.matmulSeconds = {3, 1, 2}});
  const TuningOutcome newer = runKept({.matmulSeconds = {1, 2, 3}, .cublasLtVersion = 130200});
  EXPECT_EQ(newer.timed.size(), 2 * kRuns);
  EXPECT_EQ(algorithmsOf(newer.trained), Algorithms{0});
  EXPECT_TRUE(runKept({.matmulSeconds = {2, 3, 1}}).timed.empty());
}

TEST_F(MatmulTuningTest, DamagedLinesAreTimedAnewAndTheFileIsRepaired) {
  runKept({.matmulSeconds = {3, 1, 2}});
  const std::string path = onlyFile();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string damaged = text.str();
  damaged[damaged.find("7 x 5")] = '8';
  std::ofstream(path) << damaged;
  const TuningOutcome second = runKept({.matmulSeconds = {1, 2, 3}});
  EXPECT_EQ(second.error, "");
  EXPECT_EQ(second.notes, std::vector<std::string>{path + ": damaged lines left out: 1"});
  ASSERT_EQ(second.timed.size(), kRuns);
  EXPECT_EQ(second.timed.front().m, 7);
  for (const EmulatedProduct& product : second.trained)
    EXPECT_EQ(product.algorithm, product.m == 7 ? 0 : 1);
  EXPECT_TRUE(runKept({.matmulSeconds = {1, 2, 3}}).timed.empty());
}

// With the right checksums.
TEST_F(MatmulTuningTest, AnAlgorithmThatCublasRefusesIsAnErrorThatNamesTheFile) {
  runKept({.matmulSeconds = {3, 1, 2}});
  const std::string path = onlyFile();
  std::ifstream in(path);
  std::string title, line, text;
  std::getline(in, title);
  while (std::getline(in, line)) {
    auto timed = parseTimed(line);
    ASSERT_TRUE(timed.has_value());
    timed->second.algorithm.words[0] = 0;
    text += printTimed(timed->first, timed->second) + '\n';
  }
  std::ofstream(path) << title << '\n' << text;
  const TuningOutcome outcome = runKept({.matmulSeconds = {3, 1, 2}});
  EXPECT_THAT(outcome.error,
              HasSubstr("cuBLASLt refuses the algorithm (status 7); delete " + path));
}

TEST_F(MatmulTuningTest, AFileThatCannotBeWrittenIsANote) {
  std::ofstream(folder_) << "a file where the folder should be";
  const TuningOutcome outcome = runKept({.matmulSeconds = {3, 1, 2}});
  EXPECT_EQ(outcome.error, "");
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_THAT(outcome.notes.front(), HasSubstr("are not kept, and the next run may choose others"));
  EXPECT_EQ(algorithmsOf(outcome.trained), Algorithms{1});
}

TEST_F(MatmulTuningTest, AnAlgorithmThatDoesNotRunAfterAllIsLeftOut) {
  const TuningOutcome outcome = runKept({.matmulSeconds = {3, 1, 2}, .refusedAlgorithm = 1});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(algorithmsOf(outcome.trained), Algorithms{2});
  EXPECT_THAT(runKept({.refusedAlgorithm = 0, .cublasLtVersion = 1}).error,
              HasSubstr("rank 0: cuBLASLt runs none of the algorithms that it offers for matmul"));
}

// The first product is rank 0's, the second one that of rank 2, the first of the last stage.
TEST_F(MatmulTuningTest, ARankThatFailsIsNamedAndTheOthersDoNotHang) {
  const auto error = [&](int64_t product) {
    return runKept({.matmulSeconds = {3, 1, 2}, .failsAtMatmul = product}).error;
  };
  EXPECT_THAT(error(1), HasSubstr("rank 0: cuBLASLt, the product of matmul: status 13"));
  EXPECT_THAT(error(kRuns + 4), HasSubstr("rank 2: cuBLASLt, the product of matmul: status 13"));
}

struct OneRank {
  explicit OneRank(const Apis& apis, const program::Bundle& bundle, int32_t index)
      : gpu(*Gpu::open(apis, 0)),
        memory(static_cast<size_t>(bundle.program.roles.back().arenaBytes), 1),
        image(*resolveRank(bundle.program, index, memory.data())),
        rank(*CudaRank::create(*gpu, bundle, image)) {}

  std::unique_ptr<Gpu> gpu;
  std::vector<char> memory;
  RankProgram image;
  std::unique_ptr<CudaRank> rank;
};

// As the optimizer's moments need it.
TEST_F(MatmulTuningTest, TheArenaIsZeroAfterwards) {
  EmulatedGpu emulated({.matmulSeconds = {3, 1, 2}});
  const program::Bundle bundle = makeBundle();
  OneRank one(emulated.apis(), bundle, 3);
  ThreadWorld world(1, {ranksUpTo(1)}, std::chrono::seconds(60));
  std::vector<std::string> notes;
  ASSERT_EQ(tuneMatmuls(*one.rank, *world.communicator(0), {.isOn = true}, notes).message(), "");
  EXPECT_EQ(emulated.products().size(), 2 * kRuns + 2);
  const int64_t bytes = one.image.role->arenaBytes;
  ASSERT_EQ(one.rank->fetch(one.memory.data(), bytes).message(), "");
  EXPECT_EQ(one.memory, std::vector<char>(static_cast<size_t>(bytes), 0));
}

// By the addresses of all calls: those of two slots.
TEST_F(MatmulTuningTest, AProductsAlignmentIsThatOfAllItsCalls) {
  EmulatedGpu emulated;
  program::Bundle bundle = makeBundle(2);
  const auto keys = [&] {
    OneRank one(emulated.apis(), bundle, 0);
    std::vector<std::string> keys;
    for (const MatmulCall& call : one.rank->products()) keys.push_back(one.rank->keyOf(call));
    return keys;
  };
  const std::string shape = "matmul of 6 tokens, 7 x 5, f32 in f32 to f32, ";
  EXPECT_EQ(keys(), std::vector<std::string>{shape + "aligned to 128, 128 and 64, workspace 0"});
  program::Role& role = bundle.program.roles[0];
  role.buffers[role.buffers.size() - 3].slotStride = 32;
  role.buffers.back().slotStride = 16;
  EXPECT_EQ(keys(), std::vector<std::string>{shape + "aligned to 128, 32 and 16, workspace 0"});
}

TEST_F(MatmulTuningTest, ProcessesThatDisagreeWhetherToTimeAreTold) {
  EmulatedGpu emulated({.matmulSeconds = {3, 1, 2}});
  const program::Bundle bundle = makeBundle();
  const auto run = [&](int32_t withoutTiming) {
    return runProcesses(4, 60, [&](ProcessWorld& world) -> Status {
      TRIREME_RETURN_IF_ERROR(connectAll(world, {}));
      OneRank one(emulated.apis(), bundle, world.rank());
      std::vector<std::string> notes;
      return tuneMatmuls(*one.rank, *world.communicator(world.rank()),
                         {.isOn = world.rank() != withoutTiming}, notes);
    });
  };
  for (const Status& status : run(2)) EXPECT_THAT(status.message(), HasSubstr("disagree whether"));
  EXPECT_TRUE(emulated.products().empty());
  for (const Status& status : run(-1)) EXPECT_EQ(status.message(), "");
  EXPECT_EQ(emulated.products().size(), 2 * kRuns + kRehearsed);
}

}  // namespace
}  // namespace trireme::runtime::cuda
