// What was put on a stream, kept as a CUDA graph: the host launches all of it at once.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/device/cuda/gpu.h"

namespace trireme::runtime::cuda {

class Graph {
 public:
  // Captures what `work` puts on `stream`, from this thread; nothing of it is executed. Launches
  // that go through the sink that `work` gets can be replaced. The graph is ready for its first
  // launch when `stream` has done what this puts there. Creates objects of the driver, which
  // launches and replacements do not.
  // kInternal: `work` did what cannot be captured, or the driver refuses. Also the errors of
  // `work`. The stream is as before.
  static Result<std::unique_ptr<Graph>> capture(const Gpu& gpu, StreamHandle stream,
                                                const std::function<Status(KernelSink&)>& work);
  // Nothing of it may be going on.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Replaces the arguments of the replaceable launches, which are put here in the order in which
  // they were captured. Launches of the graph that lie behind are not touched.
  class Replacement final : public KernelSink {
   public:
    explicit Replacement(const Graph& graph) : graph_(graph) {}
    Status put(const KernelLaunch& launch) override;

   private:
    const Graph& graph_;
    size_t next_ = 0;
  };

  // kInternal: the driver refuses.
  Status launch(StreamHandle stream) const;

 private:
  class Recorder;

  explicit Graph(const Gpu& gpu) : gpu_(gpu) {}
  Status instantiate(StreamHandle stream);
  Status check(int error, const char* what) const;

  const Gpu& gpu_;
  GraphHandle graph_ = nullptr;
  GraphExecHandle exec_ = nullptr;
  std::vector<GraphNodeHandle> replaceable_;  // in order; of graph_
};

}  // namespace trireme::runtime::cuda
