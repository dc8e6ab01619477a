// A rank's memory is its arena: once it trains, nothing as large as a tensor is allocated.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tests/equivalence/allocation_watch.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"

namespace trireme::equivalence {
namespace {

// So wide, and with sequences so long, that the smallest tensors (a number per channel in 16 bits,
// or per token of a rank in 32) have 192 bytes.
constexpr int64_t kSize = 96;

// A step allocates up to 128 bytes at once: 32 for each of 4 ranks, whose words at its end are
// exchanged. The readable twins, which stand in where no kernels are generated, take a row in f64.
constexpr size_t kLimit = TRIREME_HAVE_MLIR ? 128 : 8 * kSize;

spec::ModelSpec sized(spec::ModelSpec model) {
  model.hiddenSize = kSize;
  model.headSize = kSize / model.numHeads;
  model.ffnSize = 2 * kSize;
  model.maxSequence = kSize;
  return model;
}

// Of all tensors that the ranks compute with; a scalar, as the summed loss, is none.
size_t smallestTensor(const program::Program& program) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const program::Segment& segment : program.segments)
    for (const program::OperandType& operand : segment.operands)
      if (operand.elements() > 1) smallest = std::min(smallest, operand.bytes());
  return static_cast<size_t>(smallest);
}

struct MemoryCase {
  Choices choices;
  spec::Precision precision = spec::Precision::kFp32;
  int threads = 1;
};

struct StartedTraining {
  std::unique_ptr<runtime::Session> session;
  size_t smallestTensor = 0;
  size_t creating = 0;  // the largest allocation of the session's creation
};

// One that has done its first step.
Result<StartedTraining> begin(const spec::ModelSpec& model, const MemoryCase& c,
                              runtime::DataSource& data) {
  spec::TrainingSpec settings = tinyTraining(c.precision);
  settings.sequenceLength = kSize;
  settings.globalBatchSize = 4;
  TRIREME_ASSIGN_OR_RETURN(program::Bundle bundle,
                           makeBundle(model, planFor(c.choices, model, settings)));
  StartedTraining training;
  training.smallestTensor = smallestTensor(bundle.program);
  runtime::SessionOptions options;
  options.threadsPerRank = c.threads;
  watchAllocations();
  auto session = runtime::Session::create(std::move(bundle), options);
  training.creating = largestAllocation();
  if (!session) return Error(session.error());
  training.session = *std::move(session);
  if (const auto done = training.session->step(data); !done) return Error(done.error());
  return training;
}

// The largest allocation of a step.
Result<size_t> step(runtime::Session& session, runtime::DataSource& data) {
  watchAllocations();
  const auto done = session.step(data);
  const size_t largest = largestAllocation();
  if (!done) return Error(done.error());
  return largest;
}

std::vector<MemoryCase> cases() {
  using enum plan::Recompute;
  using spec::Precision;
  constexpr auto kInterleaved = plan::ScheduleKind::kInterleaved;
  constexpr auto kGpipe = plan::ScheduleKind::kGpipe;
  return {
      {{}},
      {{.recompute = kFull, .microbatchSize = 2}},
      {{.dp = 2}, Precision::kFp64},
      {{.pp = 4, .schedule = kGpipe, .recompute = kSelective}},
      {{.pp = 2, .uneven = true}, Precision::kFp32, 3},
      {{.tp = 2, .pp = 2, .recompute = kFull, .scatterGather = true}, Precision::kFp16},
      {{.tp = 2, .dp = 2, .sequenceParallel = true, .shardOptimizer = true}, Precision::kBf16},
      {{.pp = 2, .dp = 2, .virtualStages = 2, .schedule = kInterleaved, .shardOptimizer = true}},
      {{.tp = 2,
        .pp = 2,
        .virtualStages = 2,
        .schedule = kInterleaved,
        .recompute = kSelective,
        .sequenceParallel = true},
       Precision::kFp32,
       2}};
}

// A sanitizer slows the runs down many times: one family.
std::vector<spec::ModelSpec> models() {
  if (TRIREME_SANITIZED) return {sized(tinyLlama(4))};
  return {sized(tinyLlama(4)), sized(tinyGpt(4))};
}

TEST(StepMemory, NothingAsLargeAsATensorIsAllocatedAfterTheFirstStep) {
  for (const spec::ModelSpec& model : models())
    for (const MemoryCase& c : cases()) {
      SCOPED_TRACE(model.name + " " + describe(c.choices));
      SyntheticData data(model.vocabSize);
      const auto training = begin(model, c, data);
      ASSERT_TRUE(training.has_value()) << training.error().message();
      // The watch is awake: it sees the arenas, or, where mmap is not seen, the program.
      EXPECT_GT(training->creating, TRIREME_SANITIZED ? 1000u : 1000000u);
      EXPECT_GE(training->smallestTensor, 192u);
      for (int i = 0; i < 2; ++i) {
        const auto allocated = step(*training->session, data);
        ASSERT_TRUE(allocated.has_value()) << allocated.error().message();
        EXPECT_LE(*allocated, kLimit);
      }
    }
}

// A source of data is called within a step, by every rank.
class AllocatingData : public SyntheticData {
 public:
  using SyntheticData::SyntheticData;
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    allocate();
    return SyntheticData::sample(index, length, stride, tokens, labels);
  }

  std::function<void()> allocate = [] {};
};

// The negative control: the activations of one microbatch, by every way there is to allocate them.
TEST(StepMemory, ATensorThatIsAllocatedWithinAStepIsSeen) {
  constexpr size_t kBytes = 4 * kSize * kSize;
  static std::atomic<void*> memory = nullptr;  // so that no allocation is optimised away
  const auto use = [](void* allocated) {
    memory = allocated;
    return allocated;
  };
  struct Wide {
    alignas(128) char bytes[kBytes];
  };
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"malloc", [&] { free(use(malloc(kBytes))); }},
      {"calloc", [&] { free(use(calloc(kSize * kSize, 4))); }},
      {"realloc", [&] { free(use(realloc(use(malloc(1)), kBytes))); }},
      {"new", [&] { delete[] static_cast<char*>(use(new char[kBytes])); }},
      {"aligned new", [&] { delete static_cast<Wide*>(use(new Wide)); }},
      {"vector", [&] { use(std::vector<float>(kSize * kSize).data()); }},
#if !TRIREME_SANITIZED  // GCC's TSan does not tell of these
      {"aligned_alloc", [&] { free(use(aligned_alloc(128, kBytes))); }},
      {"posix_memalign",
       [&] {
         void* aligned = nullptr;
         if (posix_memalign(&aligned, 128, kBytes) == 0) free(use(aligned));
       }},
      {"mmap",
       [&] {
         munmap(use(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), kBytes);
       }},
#endif
  };
  const spec::ModelSpec model = sized(tinyGpt(1));
  AllocatingData data(model.vocabSize);
  const auto training = begin(model, {{.dp = 2}}, data);
  ASSERT_TRUE(training.has_value()) << training.error().message();
  for (const auto& [name, allocate] : ways) {
    data.allocate = allocate;
    const auto allocated = step(*training->session, data);
    ASSERT_TRUE(allocated.has_value()) << allocated.error().message();
    EXPECT_GE(*allocated, kBytes) << name;
  }
}

}  // namespace
}  // namespace trireme::equivalence
