#include "tests/support/emulated_graphs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/launch_bounds.h"

namespace trireme::testing {
namespace {

constexpr int kLaunchFailed = 719, kCaptureUnsupported = 900, kCaptureInvalidated = 901;
constexpr int kCaptureActive = 1;

// Its address names the thread.
thread_local char thisThread = 0;

}  // namespace

int EmulatedGpu::checkNoCapture(void* stream, const char* what) {
  for (const auto& [handle, other] : streams_) {
    if (other->captured == nullptr || (handle != stream && other->capturedBy != &thisThread))
      continue;
    other->isCaptureLost = true;
    fault(std::string(what) + " during a capture");
    return kCaptureUnsupported;
  }
  return 0;
}

int EmulatedGpu::submit(void* stream, const EmulatedKernel* kernel, std::function<void()> run,
                        double seconds) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return fault("work for a stream that does not exist");
  if (Graph* captured = found->second->captured.get(); captured != nullptr) {
    captured->nodes.push_back(std::make_unique<Node>(Node{std::move(run), kernel, seconds}));
    return 0;
  }
  if (!takesSubmission()) return kLaunchFailed;
  Work work{std::move(run)};
  work.seconds = seconds;
  return kernel != nullptr ? enqueueKernel(stream, std::move(work))
                           : enqueue(stream, std::move(work));
}

int EmulatedGpu::enqueueKernel(void* stream, Work work) {
  if (numLaunches_++ == options_.hangsAtLaunch) {
    work = {};
    work.endless = true;
  }
  return enqueue(stream, std::move(work));
}

int EmulatedGraphs::kernelWork(const runtime::cuda::KernelNodeParams& params,
                               std::function<void()>& work) {
  if (params.gridX == 0 || params.gridY != 1 || params.gridZ != 1 || params.blockX == 0 ||
      params.blockX > 1024 || params.blockX % 32 != 0 || params.blockY != 1 || params.blockZ != 1)
    return gpu().fault("a launch with a grid that kernels do not take");
  const std::string& name = gpu().kernelNames_[params.function];
  if (const auto bound = launchBounds().find(name);
      bound != launchBounds().end() && params.blockX > bound->second)
    return gpu().fault(fmt::format("{} is launched with blocks of {} threads, it takes {}", name,
                                   params.blockX, bound->second));
  const auto* kernel = static_cast<const EmulatedKernel*>(params.function);
  const char* args = static_cast<const char*>(params.params[0]);
  if (gpu().options_.isIdle)
    work = [] {};
  else
    work = [kernel, copy = std::vector<char>(args, args + kernel->argsBytes)] {
      kernel->run(copy.data());
    };
  return 0;
}

int EmulatedGraphs::beginCapture(void* stream, int mode) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().streams_.find(stream);
  if (found == gpu().streams_.end()) return gpu().fault("no such stream to capture");
  if (mode != runtime::cuda::kCaptureThreadLocal)
    return gpu().fault("a capture that other threads disturb");
  if (const int error = gpu().checkNoCapture(stream, "capture begun"); error != 0) return error;
  found->second->captured = std::make_unique<EmulatedGpu::Graph>();
  found->second->capturedBy = &thisThread;
  found->second->isCaptureLost = gpu().options_.losesCaptures;
  return 0;
}

int EmulatedGraphs::endCapture(void* stream, void** graph) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().streams_.find(stream);
  *graph = nullptr;
  if (found == gpu().streams_.end() || found->second->captured == nullptr)
    return gpu().fault("the end of a capture that was not begun");
  EmulatedGpu::Stream& captured = *found->second;
  if (captured.capturedBy != &thisThread)
    return gpu().fault("a capture that another thread has begun ended");
  std::unique_ptr<EmulatedGpu::Graph> result = std::move(captured.captured);
  if (captured.isCaptureLost) return kCaptureInvalidated;
  *graph = result.get();
  gpu().graphs_[*graph] = std::move(result);
  ++gpu().numCreations_;
  return 0;
}

int EmulatedGraphs::captureInfo(void* stream, int* state, uint64_t*, void**, void* const** last,
                                size_t* numLast) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().streams_.find(stream);
  if (found == gpu().streams_.end()) return gpu().fault("no such stream to ask for its capture");
  EmulatedGpu::Stream& asked = *found->second;
  *state = asked.captured != nullptr ? kCaptureActive : 0;
  if (asked.captured == nullptr) return 0;
  const auto& nodes = asked.captured->nodes;
  asked.lastNode = nodes.empty() ? nullptr : nodes.back().get();
  *last = &asked.lastNode;
  *numLast = nodes.empty() ? 0 : 1;
  return 0;
}

int EmulatedGraphs::instantiateGraph(void** exec, void* graph, unsigned long long flags) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().graphs_.find(graph);
  if (found == gpu().graphs_.end() || flags != 0)
    return gpu().fault("no such graph to instantiate");
  if (const int error = gpu().checkNoCapture(nullptr, "graph instantiated"); error != 0)
    return error;
  auto created = std::make_unique<EmulatedGpu::GraphExec>();
  created->graph = found->second.get();
  for (const auto& node : found->second->nodes) created->nodes.push_back(*node);
  *exec = created.get();
  gpu().graphExecs_[*exec] = std::move(created);
  ++gpu().numCreations_;
  return 0;
}

// A node is named by that of the graph, which must still be there.
int EmulatedGraphs::setKernelNode(void* exec, void* node,
                                  const runtime::cuda::KernelNodeParams* params) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().graphExecs_.find(exec);
  if (found == gpu().graphExecs_.end()) return gpu().fault("no such graph to change");
  EmulatedGpu::GraphExec& changed = *found->second;
  if (!gpu().graphs_.contains(const_cast<EmulatedGpu::Graph*>(changed.graph)))
    return gpu().fault("a node of a graph that was destroyed");
  const auto& nodes = changed.graph->nodes;
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [&](const auto& candidate) { return candidate.get() == node; });
  if (at == nodes.end()) return gpu().fault("a node of another graph");
  EmulatedGpu::Node& changedNode = changed.nodes[static_cast<size_t>(at - nodes.begin())];
  if (changedNode.kernel == nullptr || changedNode.kernel != params->function)
    return gpu().fault("a node that launches another kernel");
  return kernelWork(*params, changedNode.run);
}

int EmulatedGraphs::uploadGraph(void* exec, void* stream) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().graphExecs_.find(exec);
  if (found == gpu().graphExecs_.end()) return gpu().fault("no such graph to upload");
  found->second->isUploaded = true;
  return gpu().enqueue(stream, {[] {}});
}

int EmulatedGraphs::launchGraph(void* exec, void* stream) {
  const Lock lock(gpu().mutex_);
  const auto found = gpu().graphExecs_.find(exec);
  if (found == gpu().graphExecs_.end()) return gpu().fault("no such graph to launch");
  if (const int error = gpu().checkNoCapture(stream, "graph launched"); error != 0) return error;
  EmulatedGpu::GraphExec& launched = *found->second;
  if (!launched.isUploaded) ++gpu().numCreations_;
  launched.isUploaded = true;
  if (!gpu().takesSubmission()) return kLaunchFailed;
  for (const EmulatedGpu::Node& node : launched.nodes) {
    EmulatedGpu::Work work{node.run};
    work.seconds = node.seconds;
    if (const int error = node.kernel != nullptr ? gpu().enqueueKernel(stream, std::move(work))
                                                 : gpu().enqueue(stream, std::move(work));
        error != 0)
      return error;
  }
  return 0;
}

int EmulatedGraphs::destroyGraphExec(void* exec) {
  const Lock lock(gpu().mutex_);
  return gpu().graphExecs_.erase(exec) == 1 ? 0 : gpu().fault("no such graph to destroy");
}

int EmulatedGraphs::destroyGraph(void* graph) {
  const Lock lock(gpu().mutex_);
  return gpu().graphs_.erase(graph) == 1 ? 0 : gpu().fault("no such graph to destroy");
}

}  // namespace trireme::testing
