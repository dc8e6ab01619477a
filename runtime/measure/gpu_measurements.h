// What was measured of a machine's GPUs, as times, before anything is made of it. A machine with
// GPUs measures and writes a file; one with the planner makes a cluster of it (cli/calibrate).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "runtime/measure/gpu_probes.h"
#include "runtime/measure/measured_gpus.h"

namespace trireme::runtime {

// All times are of one call, with all GPUs at work at once.
struct GpuMeasurements {
  struct Kernel {
    GpuProbe probe;
    Seconds time;
    bool operator==(const Kernel&) const = default;
  };
  struct Stream {
    GpuStream stream = GpuStream::kCopy;
    Bytes moved;
    Seconds time;
    bool operator==(const Stream&) const = default;
  };
  // As MeasuredGpus::exchange() has them.
  struct Transfer {
    Exchange exchange = Exchange::kAllReduce;
    int64_t group = 2;
    int64_t bytes = 0;
    Seconds time;
    bool operator==(const Transfer&) const = default;
  };

  std::string date;     // of UTC: "2026-11-21"
  std::string version;  // of the trireme that measured
  GpuInfo gpu;
  int64_t numGpus = 1;
  Seconds launch;  // of a kernel that has next to nothing to do
  std::vector<Kernel> kernels;
  std::vector<Stream> streams;      // each of GpuStream
  std::vector<Transfer> transfers;  // by group, collective and then bytes; kSend last, one
  bool operator==(const GpuMeasurements&) const = default;
};

// "copy", "sum of squares", "AdamW"; "all-reduce", "all-gather", "reduce-scatter", "message".
std::string_view gpuStreamName(GpuStream stream);
std::string_view exchangeName(Exchange exchange);
inline constexpr GpuStream kGpuStreams[] = {GpuStream::kCopy, GpuStream::kSumSquares,
                                            GpuStream::kAdamW};
inline constexpr Exchange kMeasuredCollectives[] = {Exchange::kAllReduce, Exchange::kAllGather,
                                                    Exchange::kReduceScatter};

struct GpuMeasureOptions {
  std::string date;
  std::vector<MathFormat> formats = {MathFormat::kBf16, MathFormat::kF16, MathFormat::kF32,
                                     MathFormat::kTf32};  // of the kernels
  // Bytes of each GPU: no more than the first, or nine tenths of what is free; an error if that is
  // below the second. Half of them hold a kernel's operands: logits of 16384 tokens among 128256
  // take 4 GiB in bf16.
  int64_t mostMemory = int64_t{12} << 30, leastMemory = int64_t{512} << 20;
  MeasureProgress progress;
};

// Takes about a minute. `gpus` have not been started. kResourceExhausted: too little memory is
// free. Also the errors of MeasuredGpus.
Result<GpuMeasurements> takeMeasurements(MeasuredGpus& gpus, const GpuMeasureOptions& options);

// The text of a file, JSON: one line per time, so that a reader and a diff can follow. Numbers have
// all their digits.
inline constexpr int64_t kGpuMeasurementsVersion = 2;
inline constexpr std::string_view kGpuMeasurementsFormat = "trireme GPU measurements";
std::string printMeasurements(const GpuMeasurements& measurements);

}  // namespace trireme::runtime
