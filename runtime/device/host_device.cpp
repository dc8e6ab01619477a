#include "runtime/device/host_device.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <system_error>

#include "runtime/executor/host_memory.h"

namespace trireme::runtime {
namespace {

double normOf(const Squares& squares) { return gradientNorm(squares.data, squares.count); }

class HostDevice final : public RankDevice {
 public:
  // Throws std::system_error if a thread cannot be started.
  HostDevice(const RankProgram& rank, const SegmentCode& code, int threads)
      : rank_(rank), code_(code), pool_(threads), zeros_(pool_), arguments_(code.maxArguments()) {}

  const RankProgram& program() const override { return rank_; }
  Status beginStep() override {
    stamps_.clear();
    return {};
  }
  Status finishStep() override {
    zeros_.writeAll();
    return {};
  }
  void setWatch(std::function<Status()>) override {}
  Status mark(program::Stream, int64_t) override { return {}; }
  int64_t passed(program::Stream) const override { return std::numeric_limits<int64_t>::max(); }
  void abandon() override {}
  void quiesce() override {}
  Result<int32_t> stamp(program::Stream) override {
    stamps_.push_back(std::chrono::steady_clock::now());
    return static_cast<int32_t>(stamps_.size()) - 1;
  }
  Result<double> secondsOf(int32_t stamp) const override {
    return std::chrono::duration<double>(stamps_[static_cast<size_t>(stamp)].time_since_epoch())
        .count();
  }

  Status runSegment(const SegmentCall& call) override {
    return code_.run(call.segment,
                     {call.context, call.operands, arguments_.data(),
                      rank_.address(rank_.role->workspace), &pool_, rank_.lossScaling(), &zeros_});
  }

  Status zero(void* data, int64_t bytes) override {
    zeros_.add(data, bytes);
    return {};
  }
  void expose(const void* data) override { zeros_.writeRangeOf(data); }

  bool isAsynchronous() const override { return false; }
  Result<int32_t*> stagingFor(int32_t* target, int64_t) override { return target; }
  Status sendTokens(int32_t*, const int32_t*, int64_t) override { return {}; }

  Status sumSquares(std::span<const BucketRows> buckets, double* squares) override {
    zeros_.writeAll();
    for (const BucketRows& bucket : buckets) {
      const auto body = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const NormRow& row = bucket.rows[static_cast<size_t>(i)];
          squares[row.logicalIndex] = sumOfSquares(bucket.type, row.data, row.elements);
        }
      };
      parallelFor(pool_, std::ssize(bucket.rows), 1, std::ref(body));
    }
    return {};
  }

  Status adamW(const AdamWCall& call) override {
    AdamWStep step = call.step;
    double norm = normOf(call.squares), scale = 1;
    if (!std::isfinite(norm)) return {};
    if (call.lossScaling != nullptr) {
      scale = call.lossScaling->scale;
      norm /= scale;
      step.number = static_cast<int64_t>(call.lossScaling->takenSteps) + 1;
    }
    step.gradientScale = clipCoefficient(call.clipNorm, norm) / scale;
    for (const AdamWArrays& arrays : call.buckets)
      TRIREME_RETURN_IF_ERROR(runtime::adamW(step, arrays, pool_));
    return {};
  }

  Status updateLossScale(const LossScaleUpdate& update) override {
    updateLossScaling(*update.training, normOf(update.squares), *update.lossScaling);
    return {};
  }

  int32_t newEvent() override { return -1; }
  Status record(int32_t, program::Stream) override { return {}; }
  Status wait(int32_t, program::Stream) override { return {}; }
  Status fetch(void*, int64_t) override { return {}; }
  Status store(const void*, int64_t) override { return {}; }

 private:
  const RankProgram& rank_;
  const SegmentCode& code_;
  ThreadPool pool_;
  DeferredZeros zeros_;
  std::vector<void*> arguments_;  // scratch
  std::vector<std::chrono::steady_clock::time_point> stamps_;
};

}  // namespace

Status HostBackend::checkMemory(const program::Program& program) const {
  if (!options_.memory) return {};
  if (!options_.onlyRank) return checkArenas(program, options_.threadsPerRank, *options_.memory);
  program::Program alone;  // of one rank, with what counts
  alone.ranks = {program.ranks[static_cast<size_t>(*options_.onlyRank)]};
  alone.roles = program.roles;
  alone.segments = program.segments;
  return checkArenas(alone, options_.threadsPerRank, *options_.memory);
}

Result<RankSetup> HostBackend::prepare(const RankProgram& image,
                                       std::unique_ptr<Communicator> control) {
  try {
    return RankSetup{std::make_unique<HostDevice>(image, code_, options_.threadsPerRank),
                     std::move(control)};
  } catch (const std::system_error& error) {
    return Error(resourceExhausted(
        fmt::format("cannot start the threads of rank {}: {}", image.rank, error.what())));
  }
}

}  // namespace trireme::runtime
