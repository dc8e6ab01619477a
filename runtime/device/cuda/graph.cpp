#include "runtime/device/cuda/graph.h"

namespace trireme::runtime::cuda {

// A stream that is captured knows its last node: that of the launch before.
class Graph::Recorder final : public KernelSink {
 public:
  Recorder(Graph& graph, StreamHandle stream) : graph_(graph), stream_(stream) {}
  Status put(const KernelLaunch& launch) override {
    if (launch.blocks == 0) return {};
    TRIREME_RETURN_IF_ERROR(graph_.gpu_.launch(launch, stream_));
    int state = 0;
    const GraphNodeHandle* last = nullptr;
    size_t numLast = 0;
    TRIREME_RETURN_IF_ERROR(graph_.check(
        graph_.gpu_.driver().captureInfo(stream_, &state, nullptr, nullptr, &last, &numLast),
        "asking for the node of a launch"));
    if (numLast != 1) return internalError("a launch that is captured is no node of the graph");
    graph_.replaceable_.push_back(last[0]);
    return {};
  }

 private:
  Graph& graph_;
  StreamHandle stream_;
};

Status Graph::check(int error, const char* what) const {
  return error == 0 ? Status() : driverStatus(gpu_.driver(), error, what);
}

Result<std::unique_ptr<Graph>> Graph::capture(const Gpu& gpu, StreamHandle stream,
                                              const std::function<Status(KernelSink&)>& work) {
  std::unique_ptr<Graph> graph(new Graph(gpu));
  TRIREME_RETURN_IF_ERROR(graph->check(gpu.driver().beginCapture(stream, kCaptureThreadLocal),
                                       "beginning to capture a graph"));
  Recorder recorder(*graph, stream);
  const Status status = work(recorder);
  // Also after a failure, so that the stream executes again.
  const int error = gpu.driver().endCapture(stream, &graph->graph_);
  TRIREME_RETURN_IF_ERROR(status);
  TRIREME_RETURN_IF_ERROR(graph->check(error, "capturing a graph"));
  TRIREME_RETURN_IF_ERROR(graph->instantiate(stream));
  return graph;
}

// The first launch would upload the graph, and allocate what it needs on the GPU.
Status Graph::instantiate(StreamHandle stream) {
  const DriverApi& api = gpu_.driver();
  TRIREME_RETURN_IF_ERROR(check(api.instantiateGraph(&exec_, graph_, 0), "instantiating a graph"));
  TRIREME_RETURN_IF_ERROR(check(api.uploadGraph(exec_, stream), "uploading a graph"));
  if (!replaceable_.empty()) return {};  // nodes are named by those of the graph
  const GraphHandle graph = graph_;
  graph_ = nullptr;
  return check(api.destroyGraph(graph), "destroying a graph");
}

Graph::~Graph() {
  if (gpu_.isAbandoned()) return;
  if (exec_ != nullptr) static_cast<void>(gpu_.driver().destroyGraphExec(exec_));
  if (graph_ != nullptr) static_cast<void>(gpu_.driver().destroyGraph(graph_));
}

Status Graph::Replacement::put(const KernelLaunch& launch) {
  if (launch.blocks == 0) return {};
  if (next_ == graph_.replaceable_.size())
    return internalError("a graph is given more launches than were captured");
  void* args[] = {const_cast<void*>(launch.args)};
  KernelNodeParams params;
  params.function = launch.function;
  params.gridX = launch.blocks;
  params.blockX = launch.threads;
  params.params = args;
  return graph_.check(
      graph_.gpu_.driver().setKernelNode(graph_.exec_, graph_.replaceable_[next_++], &params),
      "replacing the arguments of a launch in a graph");
}

Status Graph::launch(StreamHandle stream) const {
  return check(gpu_.driver().launchGraph(exec_, stream), "launching a graph");
}

}  // namespace trireme::runtime::cuda
