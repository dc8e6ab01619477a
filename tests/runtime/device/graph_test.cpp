// What the driver forbids about graphs shows on the emulated GPU. What it allows: tests/gpu.
#include "runtime/device/cuda/graph.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;

class EmulatedGraph : public ::testing::Test {
 protected:
  EmulatedGraph() {
    gpu_ = *Gpu::open(emulated_.apis(), 0);
    EXPECT_EQ(api().createStream(&stream_, kStreamNonBlocking, 0), 0);
    EXPECT_EQ(api().createStream(&other_, kStreamNonBlocking, 0), 0);
    EXPECT_EQ(api().allocate(&data_, kBytes), 0);
  }
  const DriverApi& api() const { return gpu_->driver(); }
  // Of a capture in which `work` is called.
  std::string captureError(const std::function<void()>& work) {
    const auto graph = Graph::capture(*gpu_, stream_, [&](KernelSink&) -> Status {
      work();
      return {};
    });
    return graph.has_value() ? "" : graph.error().message();
  }
  int fill(StreamHandle stream) { return api().fill(data_, 7, kBytes, stream); }
  // A graph of one fill, by the driver's functions alone.
  GraphHandle captureFill() {
    GraphHandle graph = nullptr;
    EXPECT_EQ(api().beginCapture(stream_, kCaptureThreadLocal), 0);
    EXPECT_EQ(fill(stream_), 0);
    EXPECT_EQ(api().endCapture(stream_, &graph), 0);
    return graph;
  }

  static constexpr size_t kBytes = 8;
  EmulatedGpu emulated_;
  std::unique_ptr<Gpu> gpu_;
  StreamHandle stream_ = nullptr, other_ = nullptr;
  DevicePointer data_ = 0;
};

TEST_F(EmulatedGraph, CallsThatACaptureForbidsLoseIt) {
  DevicePointer more = 0;
  ModuleHandle module = nullptr;
  EXPECT_THAT(captureError([&] { EXPECT_NE(api().allocate(&more, 8), 0); }),
              HasSubstr("capturing a graph"));
  EXPECT_NE(captureError([&] { EXPECT_NE(api().synchronize(stream_), 0); }), "");
  EXPECT_NE(captureError([&] { EXPECT_NE(api().queryStream(stream_), 0); }), "");
  EXPECT_NE(captureError([&] { EXPECT_NE(api().loadModule(&module, "emulated"), 0); }), "");
  EXPECT_NE(captureError([&] { EXPECT_NE(api().beginCapture(stream_, kCaptureThreadLocal), 0); }),
            "");
  EXPECT_THAT(emulated_.faults(),
              ElementsAre("allocation during a capture", "stream waited for during a capture",
                          "stream asked for during a capture", "module loaded during a capture",
                          "capture begun during a capture"));
  EXPECT_EQ(captureError([&] { EXPECT_EQ(fill(stream_), 0); }), "");
  EXPECT_EQ(emulated_.numLiveObjects(), 3);  // the streams and the memory
}

// Other streams go on, and other threads may do as they like with them.
TEST_F(EmulatedGraph, WorkOfOtherStreamsIsNotCaptured) {
  EXPECT_EQ(api().beginCapture(stream_, kCaptureThreadLocal), 0);
  EXPECT_EQ(fill(other_), 0);
  std::thread([&] {
    EXPECT_EQ(gpu_->makeCurrent().message(), "");
    EXPECT_EQ(api().synchronize(other_), 0);
    DevicePointer block = 0;
    EXPECT_EQ(api().allocate(&block, kBytes), 0);
    EXPECT_EQ(api().release(block), 0);
  }).join();
  GraphHandle graph = nullptr;
  EXPECT_EQ(api().endCapture(stream_, &graph), 0);
  EXPECT_EQ(api().destroyGraph(graph), 0);
  EXPECT_EQ(*reinterpret_cast<const char*>(data_), 7);
  EXPECT_EQ(emulated_.faults(), std::vector<std::string>());
}

TEST_F(EmulatedGraph, WhatIsDestroyedIsNotUsedAgainAndWhatIsNotShows) {
  const int64_t live = emulated_.numLiveObjects();
  const GraphHandle graph = captureFill();
  GraphExecHandle exec = nullptr;
  EXPECT_EQ(api().instantiateGraph(&exec, graph, 0), 0);
  EXPECT_EQ(emulated_.numLiveObjects(), live + 2);
  EXPECT_EQ(api().destroyGraph(graph), 0);
  EXPECT_EQ(api().launchGraph(exec, stream_), 0);
  EXPECT_NE(api().setKernelNode(exec, nullptr, nullptr), 0);
  EXPECT_EQ(api().destroyGraphExec(exec), 0);
  EXPECT_NE(api().launchGraph(exec, stream_), 0);
  EXPECT_NE(api().instantiateGraph(&exec, graph, 0), 0);
  EXPECT_NE(api().destroyGraph(graph), 0);
  EXPECT_EQ(emulated_.numLiveObjects(), live);
  EXPECT_THAT(emulated_.faults(),
              ElementsAre("a node of a graph that was destroyed", "no such graph to launch",
                          "no such graph to instantiate", "no such graph to destroy"));
}

// The first launch of a graph would create something on a real GPU, in the middle of a step.
TEST_F(EmulatedGraph, AGraphIsUploadedBeforeItsFirstLaunch) {
  const auto graph = Graph::capture(*gpu_, stream_, [&](KernelSink&) -> Status {
    EXPECT_EQ(fill(stream_), 0);
    return {};
  });
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  const int64_t created = emulated_.numCreations();
  EXPECT_EQ((*graph)->launch(stream_).message(), "");
  EXPECT_EQ(emulated_.numCreations(), created);
}

// As with streams and events: who waits for an abandoned GPU may wait for ever.
TEST_F(EmulatedGraph, NothingIsFreedOnAnAbandonedGpu) {
  const int64_t live = emulated_.numLiveObjects();
  auto graph = Graph::capture(*gpu_, stream_, [&](KernelSink&) -> Status {
    EXPECT_EQ(fill(stream_), 0);
    return {};
  });
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  gpu_->abandon();
  graph->reset();
  EXPECT_EQ(emulated_.numLiveObjects(), live + 1);
}

}  // namespace
}  // namespace trireme::runtime::cuda
