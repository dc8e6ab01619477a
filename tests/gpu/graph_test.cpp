// Graphs of launches: what is captured, what is replaced, what cannot be captured.
#include "runtime/device/cuda/graph.h"

#include <gmock/gmock.h>

#include "runtime/device/cuda/kernels/args.h"
#include "tests/gpu/test_gpu.h"

namespace trireme::runtime::gpu {
namespace {

using cuda::Graph;
using cuda::KernelSink;
using cuda::ReduceArgs;
using ::testing::HasSubstr;
using Numbers = std::vector<int32_t>;

class GpuGraph : public ::testing::Test {
 protected:
  GpuGraph() {
    auto opened = cuda::Gpu::open(test_.apis(), 0);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    gpu_ = *std::move(opened);
    memory_ = std::make_unique<GpuMemory>(*gpu_);
    auto found = gpu_->kernel("reduce_sum_i32");
    EXPECT_TRUE(found.has_value()) << found.error().message();
    sum_ = *found;
    // Warms up: the driver loads the kernel.
    const ReduceArgs args = sumOf(memory_->upload(Numbers{0}), memory_->upload(Numbers{0}));
    EXPECT_EQ(gpu_->launch(cuda::launchOf(sum_, &args, 1), memory_->stream()).message(), "");
  }

  // to += from
  static ReduceArgs sumOf(int32_t* to, int32_t* from) {
    ReduceArgs args{};
    args.inputs[0] = to;
    args.inputs[1] = from;
    args.outputs[0] = to;
    args.numInputs = 2, args.numOutputs = 1;
    args.end = 1;
    return args;
  }
  Status put(KernelSink& sink, int32_t* to, int32_t* from) const {
    const ReduceArgs args = sumOf(to, from);
    return sink.put(cuda::launchOf(sum_, &args, args.end));
  }
  Result<std::unique_ptr<Graph>> capture(const std::function<Status(KernelSink&)>& work) {
    return Graph::capture(*gpu_, memory_->stream(), work);
  }

  TestGpu test_;
  std::unique_ptr<cuda::Gpu> gpu_;
  std::unique_ptr<GpuMemory> memory_;
  cuda::FunctionHandle sum_ = nullptr;
};

// Nothing happens until the launch; then all of it in order, as often as it is launched:
// b += a, c += b: from (1, 10, 100) b is 11, 12 and c is 111, 123.
TEST_F(GpuGraph, LaunchesWhatWasCaptured) {
  int32_t* a = memory_->upload(Numbers{1});
  int32_t* b = memory_->upload(Numbers{10});
  int32_t* c = memory_->upload(Numbers{100});
  cuda::StreamSink fixed(*gpu_, memory_->stream());
  const auto graph = capture([&](KernelSink&) -> Status {
    TRIREME_RETURN_IF_ERROR(put(fixed, b, a));
    return put(fixed, c, b);
  });
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  EXPECT_EQ(memory_->download(c, 1), Numbers{100});
  EXPECT_EQ((*graph)->launch(memory_->stream()).message(), "");
  EXPECT_EQ((*graph)->launch(memory_->stream()).message(), "");
  EXPECT_EQ(memory_->download(b, 1), Numbers{12});
  EXPECT_EQ(memory_->download(c, 1), Numbers{123});
}

// Replaceable launches alone change, in their order, and not in the launch that lies behind:
// x += 1, x += 10 (fixed), x += 100 and then x += 1000, x += 10, x += 10000.
TEST_F(GpuGraph, ReplacesArgumentsOfLaterLaunches) {
  int32_t* x = memory_->upload(Numbers{0});
  std::vector<int32_t*> powers;
  for (const int32_t power : {1, 10, 100, 1000, 10000})
    powers.push_back(memory_->upload(Numbers{power}));
  cuda::StreamSink fixed(*gpu_, memory_->stream());
  const auto graph = capture([&](KernelSink& replaceable) -> Status {
    TRIREME_RETURN_IF_ERROR(put(replaceable, x, powers[0]));
    TRIREME_RETURN_IF_ERROR(put(fixed, x, powers[1]));
    return put(replaceable, x, powers[2]);
  });
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  EXPECT_EQ((*graph)->launch(memory_->stream()).message(), "");
  Graph::Replacement replacement(**graph);
  EXPECT_EQ(put(replacement, x, powers[3]).message(), "");
  EXPECT_EQ(put(replacement, x, powers[4]).message(), "");
  EXPECT_THAT(put(replacement, x, powers[4]).message(), HasSubstr("more launches than were"));
  EXPECT_EQ((*graph)->launch(memory_->stream()).message(), "");
  EXPECT_EQ(memory_->download(x, 1), Numbers{111 + 11010});
}

// A launch without blocks is no node, whoever it is given to.
TEST_F(GpuGraph, EmptyLaunchesAreLeftOut) {
  int32_t* x = memory_->upload(Numbers{0});
  int32_t* one = memory_->upload(Numbers{1});
  const ReduceArgs nothing{};
  const auto putBoth = [&](KernelSink& sink) -> Status {
    TRIREME_RETURN_IF_ERROR(sink.put(cuda::launchOf(sum_, &nothing, 0)));
    return put(sink, x, one);
  };
  const auto graph = capture(putBoth);
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  Graph::Replacement replacement(**graph);
  EXPECT_EQ(putBoth(replacement).message(), "");
  EXPECT_EQ((*graph)->launch(memory_->stream()).message(), "");
  EXPECT_EQ(memory_->download(x, 1), Numbers{1});
}

// The error of what was to be captured is returned, and the stream executes again.
TEST_F(GpuGraph, AFailureEndsTheCapture) {
  int32_t* x = memory_->upload(Numbers{1});
  cuda::StreamSink sink(*gpu_, memory_->stream());
  const auto graph = capture([&](KernelSink& replaceable) -> Status {
    TRIREME_RETURN_IF_ERROR(put(replaceable, x, x));
    return internalError("no more of this");
  });
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().message(), "no more of this");
  EXPECT_EQ(put(sink, x, x).message(), "");
  EXPECT_EQ(memory_->download(x, 1), Numbers{2});
}

TEST_F(GpuGraph, ToWaitForAStreamThatIsCapturedIsAnError) {
  if (!isRealGpu()) GTEST_SKIP() << "an emulated one takes it for a fault";
  const auto graph = capture([&](KernelSink&) -> Status {
    EXPECT_NE(gpu_->driver().synchronize(memory_->stream()), 0);
    return {};
  });
  ASSERT_FALSE(graph.has_value());
  EXPECT_THAT(graph.error().message(), HasSubstr("capturing a graph"));
  EXPECT_EQ(gpu_->driver().synchronize(memory_->stream()), 0);
}

}  // namespace
}  // namespace trireme::runtime::gpu
