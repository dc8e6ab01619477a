// Ranks that compute on this machine's processor: generated code, library kernels, a thread pool
// per rank.
#pragma once
#include <memory>
#include <optional>

#include "ir/base/units.h"
#include "runtime/device/device.h"
#include "runtime/executor/segment_code.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {

struct HostOptions {
  int threadsPerRank = 1;
  std::optional<Bytes> memory;      // for all arenas; nothing: not checked
  std::optional<int32_t> onlyRank;  // of this process; nothing: all
};

class HostBackend final : public Backend {
 public:
  HostBackend(SegmentCode code, const HostOptions& options)
      : code_(std::move(code)), options_(options) {}
  Status checkMemory(const program::Program& program) const override;
  // kResourceExhausted: the rank's threads cannot be started.
  Result<RankSetup> prepare(const RankProgram& image,
                            std::unique_ptr<Communicator> control) override;

 private:
  SegmentCode code_;
  HostOptions options_;
};

}  // namespace trireme::runtime
