#include "runtime/device/cuda/matmul_timing.h"

#include <algorithm>
#include <array>
#include <optional>

namespace trireme::runtime::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr size_t kTimedRuns = 5;

// One before the first timed run, and one after each.
class Events {
 public:
  explicit Events(const DriverApi& api) : api_(api) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    for (EventHandle event : events_)
      if (event != nullptr) static_cast<void>(api_.destroyEvent(event));
  }

  Status create() {
    for (EventHandle& event : events_) TRIREME_RETURN_IF_ERROR(check(api_.createEvent(&event, 0)));
    return {};
  }
  Status record(size_t i, StreamHandle stream) {
    return check(api_.recordEvent(events_[i], stream));
  }
  // After the stream has passed them all.
  Result<Seconds> shortest() const {
    float least = 0;
    for (size_t i = 0; i < kTimedRuns; ++i) {
      float milliseconds = 0;
      TRIREME_RETURN_IF_ERROR(check(api_.elapsedTime(&milliseconds, events_[i], events_[i + 1])));
      least = i == 0 ? milliseconds : std::min(least, milliseconds);
    }
    return Seconds(1e-3 * static_cast<double>(least));
  }

 private:
  Status check(int error) const { return driverStatus(api_, error, "timing a matrix product"); }

  const DriverApi& api_;
  std::array<EventHandle, kTimedRuns + 1> events_{};
};

class Timing {
 public:
  Timing(const Gpu& gpu, const MatmulCall& call, const Workspace& workspace, StreamHandle stream,
         const std::function<Status()>& occupy)
      : api_(gpu.driver()),
        call_(call),
        workspace_(workspace),
        stream_(stream),
        occupy_(occupy),
        events_(api_) {}

  Status open() { return events_.create(); }

  // Nothing: cuBLASLt does not run it after all. The first run may load code.
  Result<std::optional<Seconds>> time(const MatmulAlgorithm& algorithm) {
    TRIREME_ASSIGN_OR_RETURN(const bool runs, run(algorithm));
    if (!runs) return std::nullopt;
    TRIREME_RETURN_IF_ERROR(occupy_());
    TRIREME_RETURN_IF_ERROR(events_.record(0, stream_));
    for (size_t i = 1; i <= kTimedRuns; ++i) {
      TRIREME_ASSIGN_OR_RETURN(const bool runsAgain, run(algorithm));
      if (!runsAgain) return std::nullopt;
      TRIREME_RETURN_IF_ERROR(events_.record(i, stream_));
    }
    TRIREME_RETURN_IF_ERROR(
        driverStatus(api_, api_.synchronize(stream_), "timing a matrix product"));
    return events_.shortest();
  }

 private:
  Result<bool> run(const MatmulAlgorithm& algorithm) {
    return call_.matmul->tryRun(algorithm, call_.operands.data(), workspace_, stream_);
  }

  const DriverApi& api_;
  const MatmulCall& call_;
  const Workspace& workspace_;
  StreamHandle stream_;
  const std::function<Status()>& occupy_;
  Events events_;
};

}  // namespace

Result<TimedAlgorithm> timeFastest(const Gpu& gpu, const MatmulCall& call,
                                   const Workspace& workspace, StreamHandle stream,
                                   const std::function<Status()>& occupy) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<MatmulAlgorithm> candidates,
                           call.matmul->candidates(call.alignment, workspace.bytes, kCandidates));
  Timing timing(gpu, call, workspace, stream, occupy);
  TRIREME_RETURN_IF_ERROR(timing.open());
  std::optional<TimedAlgorithm> best;
  for (const MatmulAlgorithm& candidate : candidates) {
    TRIREME_ASSIGN_OR_RETURN(const std::optional<Seconds> time, timing.time(candidate));
    if (time && (!best || *time < best->time)) best = TimedAlgorithm{candidate, *time};
  }
  if (best) return *best;
  return Error(internalError("cuBLASLt runs none of the algorithms that it offers for " +
                             call.matmul->key(call.alignment, workspace.bytes)));
}

}  // namespace trireme::runtime::cuda
