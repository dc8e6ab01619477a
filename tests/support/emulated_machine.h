// GPUs whose every rate is known: what a measurement of them has to say.
#pragma once
#include "runtime/device/cuda/kernels/args.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::testing {

struct EmulatedRates {
  double launch = 2e-6;                            // seconds, of every kernel and product
  double matmulBf16 = 200e12, matmulF16 = 180e12;  // FLOP/s
  double matmulF32 = 16e12, matmulTf32 = 100e12;   // of factors in f32
  double attentionBf16 = 50e12, attentionF16 = 60e12, attentionF32 = 4e12;  // of the causal half
  double memory = 1.5e12;  // bytes/s, read or written
  double allReduceLatency = 12e-6, busBandwidth = 240e9, pairBandwidth = 80e9;
};

// Seconds that the task takes on a GPU of these rates.
double secondsOn(const EmulatedRates& rates, const EmulatedTask& task);

// That computes nothing, with its time.
EmulatedGpuOptions emulatedMachine(const EmulatedRates& rates, int numDevices = 1);

}  // namespace trireme::testing
