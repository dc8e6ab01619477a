// Every kernel that is generated for GPUs, call by call: against the reference, and, to the bit,
// against its twin for hosts. The bundles are those that tests/gpu/prepare makes a twin of, with
// odd widths and numbers of tokens, shards, dropout, in all types.
//
// An emulated GPU runs the twins in place of the kernels: there this tests what is launched, with
// which operands, and the comparison itself. The form that GPUs run is compared with the twins' in
// tests/codegen, by fibers.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "ir/program/workspace.h"
#include "runtime/device/cuda/generated_launch.h"
#include "runtime/executor/arena.h"
#include "runtime/executor/cpu_features.h"
#include "runtime/kernels/kernels.h"
#include "tests/gpu/bundles.h"
#include "tests/gpu/generated_calls.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/host_twin.h"
#include "tests/support/op_case.h"

namespace trireme::runtime::gpu {
namespace {

using program::KernelCall;
using program::KernelContext;
using program::OpKind;
using trireme::testing::EmulatedGpu;

KernelContext drawContext(uint64_t tpIndex, std::mt19937_64& random) {
  KernelContext context;
  context.firstSample = random() % 1000;
  context.tpIndex = tpIndex;
  for (uint32_t i = 0; i < 8; ++i)
    context.keys[i] = makeRngKey(random(), 3, static_cast<uint32_t>(random() % 8), RngStream(i));
  return context;
}

// The whole memory of the call, as a launch on the GPU leaves it.
Result<Bytes> runKernelOnGpu(const cuda::Gpu& gpu, const KernelCall& call, const CallImage& image,
                             const KernelContext& context) {
  TRIREME_ASSIGN_OR_RETURN(cuda::GeneratedLaunch launch, cuda::GeneratedLaunch::create(gpu, call));
  GpuMemory memory(gpu);
  char* const base = memory.upload(image.bytes());
  cuda::StreamSink sink(gpu, memory.stream());
  TRIREME_RETURN_IF_ERROR(launch.run(context, image.addresses(base).data(), sink));
  return memory.download(base, image.bytes().size());
}

// Kernels of hosts that do what those of a bundle for GPUs do.
class Twins {
 public:
  // `name`: of the bundle that was compiled for this host, of the same program.
  explicit Twins(const std::string& name) : bundle_(bundleOf(name)) {
    const std::string path = std::filesystem::path(bundleFolder()) / name / "kernels.so";
    library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* library) {
      if (library != nullptr) dlclose(library);
    });
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  static bool runHere(const std::string& name) { return checkTarget(bundleOf(name).target).ok(); }

  // Kernels for hosts and for GPUs have names of their own. Of a segment no two have the same
  // operands.
  const KernelCall& callLike(const KernelCall& call, size_t segment) const {
    for (const KernelCall& twin : bundle_.kernels[segment].calls)
      if (twin.kind == program::KernelCallKind::kGenerated && twin.operands == call.operands)
        return twin;
    throw std::runtime_error(call.symbol + " has no twin");
  }
  program::GeneratedKernel kernel(const KernelCall& twin) const {
    void* const found = dlsym(library_.get(), twin.symbol.c_str());
    EXPECT_NE(found, nullptr) << twin.symbol;
    return reinterpret_cast<program::GeneratedKernel>(found);
  }

  // The whole memory of the call, as this host leaves it.
  Bytes run(const KernelCall& twin, const CallImage& image, const KernelContext& context) const {
    constexpr int64_t kAlignment = 256;
    const size_t bytes = image.bytes().size();
    Bytes memory(bytes + kAlignment);
    char* const base = reinterpret_cast<char*>(
        program::roundUp(reinterpret_cast<intptr_t>(memory.data()), kAlignment));
    std::copy(image.bytes().begin(), image.bytes().end(), base);
    const std::vector<void*> addresses = image.addresses(base);
    std::vector<void*> arguments;
    for (const int32_t operand : twin.operands)
      arguments.push_back(addresses[static_cast<size_t>(operand)]);
    kernel(twin)(&context, arguments.data(), 0, twin.extent);
    return {base, base + bytes};
  }

  // For an emulated GPU, by the names of `forGpus`.
  std::map<std::string, trireme::testing::EmulatedKernel> emulated(
      const program::Bundle& forGpus) const {
    std::map<std::string, trireme::testing::EmulatedKernel> kernels;
    for (size_t i = 0; i < forGpus.kernels.size(); ++i)
      for (const KernelCall& call : forGpus.kernels[i].calls) {
        if (call.kind != program::KernelCallKind::kGenerated) continue;
        const KernelCall& twin = callLike(call, i);
        kernels[call.symbol] = trireme::testing::hostTwin(library_, kernel(twin), twin);
      }
    return kernels;
  }

 private:
  program::Bundle bundle_;
  std::shared_ptr<void> library_;
};

std::vector<RankProgram> ranksOf(const program::Program& program) {
  std::vector<RankProgram> ranks;
  for (int32_t rank = 0; rank < program.numRanks(); ++rank) {
    const auto role = static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].role);
    const auto unused = Arena::allocate(program.roles[role].arenaBytes);  // for its addresses
    EXPECT_TRUE(unused.has_value()) << unused.error().message();
    auto resolved = resolveRank(program, rank, unused->data());
    EXPECT_TRUE(resolved.has_value()) << resolved.error().message();
    ranks.push_back(*std::move(resolved));
  }
  return ranks;
}

class GpuGenerated : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!isRealGpu() && !hasBundles())
      GTEST_SKIP() << "no bundles: a build with the code generator makes them";
    bundle_ = bundleOf(GetParam() + ".bundle");
    const std::string twin = GetParam() + "-twin.bundle";
    const Status runsHere = checkTarget(bundleOf(twin).target);
    if (runsHere.ok())
      twins_ = std::make_unique<Twins>(twin);
    else
      GTEST_LOG_(WARNING) << "no bits are compared: " << runsHere.message();
    ASSERT_TRUE(isRealGpu() || runsHere.ok());
  }

  // Results that lie apart from what is read, and as the program lays them.
  std::set<Overlay> overlaysOfCall(const GeneratedCall& call, int32_t segment) {
    const auto& types = bundle_.program.segments[static_cast<size_t>(segment)].operands;
    auto overlays = overlaysOf(ranks_, segment, types, call);
    EXPECT_TRUE(overlays.has_value()) << overlays.error().message();
    overlays->insert(Overlay());
    return *overlays;
  }

  void compare(const cuda::Gpu& gpu, const GeneratedCall& call, const CallImage& image,
               const KernelContext& context, size_t segment) {
    const Result<Bytes> after = runKernelOnGpu(gpu, *call.kernel, image, context);
    ASSERT_TRUE(after.has_value()) << after.error().message();
    EXPECT_EQ(image.check(*after, tolerance()), "");
    if (twins_ == nullptr) return;
    EXPECT_TRUE(*after == twins_->run(twins_->callLike(*call.kernel, segment), image, context))
        << "other bits than on the host";
  }

  void compareCallsOf(const cuda::Gpu& gpu, int32_t index, const KernelContext& context) {
    const auto i = static_cast<size_t>(index);
    const program::Segment& segment = bundle_.program.segments[i];
    const auto values =
        runSegmentByReference(segment, context, bundle_.program.training.vocabSize, random_);
    ASSERT_TRUE(values.has_value()) << values.error().message();
    for (const GeneratedCall& call : generatedCallsOf(segment, bundle_.kernels[i])) {
      EXPECT_FALSE(call.written.empty()) << call.kernel->symbol;
      for (const Overlay& overlay : overlaysOfCall(call, index)) {
        SCOPED_TRACE(fmt::format("{} in {}, {} results over operands, tensor rank {}",
                                 call.kernel->symbol, segment.name, overlay.size(),
                                 context.tpIndex));
        compare(gpu, call, {segment, call, *values, overlay}, context, i);
        ++numCompared_;
        if (!overlay.empty()) ++numOverlaid_;
      }
    }
  }

  double tolerance() const { return testing::roundingOf(bundle_.program.training.computeDType); }

  program::Bundle bundle_;
  std::unique_ptr<Twins> twins_;  // null: this machine's processor lacks what they need
  std::vector<RankProgram> ranks_;
  std::mt19937_64 random_{testing::seedOfDraws()};
  int numCompared_ = 0, numOverlaid_ = 0;
};

TEST_P(GpuGenerated, KernelsMatchTheReferenceAndTheirTwins) {
  TestGpu test;
  if (!isRealGpu()) EmulatedGpu::instance()->setGenerated(twins_->emulated(bundle_));
  const auto gpu = cuda::Gpu::open(test.apis(), 0);
  ASSERT_TRUE(gpu.has_value()) << gpu.error().message();
  const auto targets = program::parseGpuTargets(bundle_.target.arch);
  ASSERT_TRUE(targets.has_value()) << targets.error().message();
  ASSERT_EQ((*gpu)->loadGenerated(cuda::generatedImages(bundle_, *targets)).message(), "");
  ranks_ = ranksOf(bundle_.program);
  for (int32_t tpIndex = 0; tpIndex < bundle_.program.tp; ++tpIndex)
    for (int32_t i = 0; i < std::ssize(bundle_.program.segments); ++i)
      compareCallsOf(**gpu, i, drawContext(static_cast<uint64_t>(tpIndex), random_));
  EXPECT_GT(numCompared_, 10);
  EXPECT_GT(numOverlaid_, 0);
}

// "gpt" and "llama" have rows of whole warps' lanes.
const std::vector<std::string> kBundles = {
    "gpt-fp16",       "llama-fp16",     "odd-gpt-fp64",     "odd-gpt-fp32",    "odd-gpt-bf16",
    "odd-gpt-fp16",   "odd-llama-fp64", "odd-llama-fp32",   "odd-llama-bf16",  "odd-llama-fp16",
    "split-gpt-fp32", "split-gpt-bf16", "split-llama-fp32", "split-llama-bf16"};

INSTANTIATE_TEST_SUITE_P(Bundles, GpuGenerated, ::testing::ValuesIn(kBundles),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Ops of which no call of the library is left.
void addGeneratedOps(const program::Bundle& bundle, std::set<OpKind>& kinds) {
  for (size_t i = 0; i < bundle.kernels.size(); ++i) {
    std::multiset<OpKind> ops;
    for (const program::SegmentOp& op : bundle.program.segments[i].ops) ops.insert(op.kind);
    for (const KernelCall& call : bundle.kernels[i].calls)
      if (call.kind == program::KernelCallKind::kLibrary) ops.extract(call.op.kind);
    kinds.insert(ops.begin(), ops.end());
  }
}

TEST(GpuGeneratedBundles, HaveEveryOpThatIsGenerated) {
  if (!hasBundles()) GTEST_SKIP() << "no bundles: a build with the code generator makes them";
  std::set<OpKind> kinds;
  for (const std::string& name : kBundles) addGeneratedOps(bundleOf(name + ".bundle"), kinds);
  const std::set<OpKind> library = {
      OpKind::kEmbedding,        OpKind::kMatmul,        OpKind::kAttention,
      OpKind::kLossMax,          OpKind::kLossTarget,    OpKind::kLossSumExp,
      OpKind::kTokenLoss,        OpKind::kEmbeddingGrad, OpKind::kMatmulGradInput,
      OpKind::kMatmulGradWeight, OpKind::kAttentionGrad, OpKind::kLossGrad};
  for (int kind = 0; kind < program::kNumOpKinds; ++kind)
    EXPECT_NE(kinds.contains(OpKind(kind)), library.contains(OpKind(kind)))
        << program::opName(OpKind(kind));
}

// y = x + z, and a sum over tokens, by a kernel that is wrong in some way: what the comparison
// says.
class GpuGeneratedComparison : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 37, kTokens = 6;
  using Spoil = std::function<void(const std::vector<char*>& operands)>;
  enum class Work { kDone, kDoneOverZeros, kLeftOut };

  // `spoil` gets the addresses of x, z, y, dBias, when the kernel has done its work.
  std::string saysOf(const Spoil& spoil, const Overlay& overlay = {}, Work work = Work::kDone) {
    const program::CompiledSegment compiled{{kernel_}};
    std::mt19937_64 random(testing::seedOfDraws());
    const KernelContext context = drawContext(0, random);
    const auto values = runSegmentByReference(segment_, context, 1, random);
    const std::vector<GeneratedCall> calls = generatedCallsOf(segment_, compiled);
    EXPECT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].read, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(calls[0].written, (std::vector<int32_t>{2, 3}));
    const CallImage image(segment_, calls[0], *values, overlay);
    TestGpu test;
    EmulatedGpu::instance()->setGenerated({{"wrong", emulated(spoil, work)}});
    const auto gpu = cuda::Gpu::open(test.apis(), 0);
    EXPECT_EQ((*gpu)->loadGenerated({{80, true, "PTX"}}).message(), "");
    const Result<Bytes> after = runKernelOnGpu(**gpu, kernel_, image, context);
    return after.has_value() ? image.check(*after, 1e-6) : after.error().message();
  }

  trireme::testing::EmulatedKernel emulated(const Spoil& spoil, Work work) const {
    return {sizeof(KernelContext) + 4 * sizeof(void*), [=, this](const void* args) {
              const auto* context = static_cast<const KernelContext*>(args);
              const auto* operands = reinterpret_cast<void* const*>(context + 1);
              if (work == Work::kLeftOut) return;
              if (work == Work::kDoneOverZeros)
                std::memset(operands[2], 0, kWidth * kTokens * sizeof(float));
              for (const program::SegmentOp& op : segment_.ops)
                EXPECT_TRUE(runReferenceOp({&op, segment_.operands.data(), operands, context,
                                            nullptr, nullptr})
                                .ok());
              std::vector<char*> bytes;
              for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char*>(operands[i]));
              spoil(bytes);
            }};
  }
  static void set(char* floats, int64_t i, float value) {
    std::memcpy(floats + i * static_cast<int64_t>(sizeof(float)), &value, sizeof(float));
  }

  const program::OperandType row_{DType::kF32, {3, 2, kWidth}};
  const program::Segment segment_{
      "wrong",
      {row_, row_, row_, {DType::kF32, {kWidth}}},
      std::vector<bool>(4),
      {{OpKind::kAdd, {}, {0, 1}, {2}}, {OpKind::kBiasGrad, {}, {1}, {3}}}};
  const KernelCall kernel_{.kind = program::KernelCallKind::kGenerated,
                           .symbol = "wrong",
                           .operands = {0, 1, 2, 3},
                           .extent = kTokens,
                           .op = {}};
};

TEST_F(GpuGeneratedComparison, SeesWhatAKernelDoesWrong) {
  if (isRealGpu()) GTEST_SKIP() << "kernels that are wrong run on an emulated GPU alone";
  using Operands = std::vector<char*>;
  constexpr int64_t kLast = kWidth * kTokens - 1;
  EXPECT_EQ(saysOf([](const Operands&) {}), "");
  EXPECT_EQ(saysOf([](const Operands&) {}, {{2, 0}}), "");
  const std::string leftOut = saysOf([](const Operands&) {}, {}, Work::kLeftOut);
  EXPECT_TRUE(leftOut.starts_with("operand 2, element 0: -nan for")) << leftOut;
  const auto wrong = [&](int operand, int64_t i, float value) {
    return saysOf([=](const Operands& at) { set(at[static_cast<size_t>(operand)], i, value); });
  };
  EXPECT_TRUE(wrong(2, kLast, NAN).starts_with("operand 2, element 221: nan for"));
  EXPECT_TRUE(wrong(2, 5, 9).starts_with("operand 2, element 5: 9 for"));
  EXPECT_TRUE(wrong(3, 36, 99).starts_with("operand 3, element 36: 99 for"));
  EXPECT_EQ(wrong(1, 0, 0), "operand 1, which is only read, is changed");
  EXPECT_EQ(wrong(2, kLast + 1, NAN), "byte 0 behind operand 2 is written");
  EXPECT_EQ(wrong(3, 37 + 32, 1), "byte 128 behind operand 3 is written");
  const auto goesOn = [](const Operands& at) {  // to the next element, which is made of guards
    constexpr size_t kBytes = (kLast + 1) * sizeof(float);
    std::memcpy(at[2] + kBytes, at[0] + kBytes, sizeof(float));
  };
  EXPECT_EQ(saysOf(goesOn), "byte 0 behind operand 2 is written");
  EXPECT_EQ(wrong(0, kLast + 1, 0), "byte 0 behind operand 0 is written");
  EXPECT_EQ(wrong(0, -1, 0), "memory before an operand is written");
}

// A result that is stored before an operand is loaded is right as long as they lie apart.
TEST_F(GpuGeneratedComparison, SeesWhatOnlyOverlaidResultsShow) {
  if (isRealGpu()) GTEST_SKIP() << "kernels that are wrong run on an emulated GPU alone";
  const auto nothing = [](const std::vector<char*>&) {};
  EXPECT_EQ(saysOf(nothing, {}, Work::kDoneOverZeros), "");
  EXPECT_TRUE(
      saysOf(nothing, {{2, 0}}, Work::kDoneOverZeros).starts_with("operand 2, element 0: "));
}

// What a segment makes of inputs that nobody could have made says nothing.
TEST_F(GpuGeneratedComparison, RefusesAReferenceThatIsNotFinite) {
  std::mt19937_64 random(1);
  const KernelContext context = drawContext(0, random);
  auto values = runSegmentByReference(segment_, context, 1, random);
  ASSERT_TRUE(values.has_value());
  set(values->after[2].data(), 7, INFINITY);
  const program::CompiledSegment compiled{{kernel_}};
  const std::vector<GeneratedCall> calls = generatedCallsOf(segment_, compiled);
  const CallImage image(segment_, calls[0], *values, {});
  EXPECT_EQ(image.check(image.bytes(), 1),
            "operand 2, element 7: the reference has inf, which says nothing");
}

}  // namespace
}  // namespace trireme::runtime::gpu
