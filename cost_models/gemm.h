// Time of a matrix product on a GPU: tiles on its multiprocessors, in waves.
#pragma once
#include <cstdint>

#include "ir/base/units.h"
#include "ir/spec/cluster_spec.h"

namespace trireme::cost {

// `count` independent products [m, k] x [k, n] in one kernel.
struct ProductShape {
  int64_t m = 1, n = 1, k = 1;
  int64_t count = 1;
  double factorBytes = 2;    // per element of the factors
  double resultBytes = 2;    // per element of the product
  bool accumulates = false;  // adds to what is there, and so reads it as well
  double ramp = 1;           // of depthRamp: twice as long, in elements, if elements take half

  Flops flops() const;
  Bytes bytes() const;  // each factor read once
};

// The best of a few tiles tm x tn and of 1, 2 or 4 parts of the depth, s:
//
//   waves    w = count ceil(m/tm) ceil(n/tn) s / multiprocessors
//   felt     W = waveShare ceil(w) + (1 - waveShare) max(w, 1)
//   rate     R = peak / multiprocessors x matmulEfficiency x share x E(tm, tn) / E(256, 128),
//            E(tm, tn) = 1 / (1 + tileDelivery (1/tm + 1/tn))
//   time       = max(W 2 tm tn (k/s + depthRamp) / R, bytes / memory rate)
//                + (s > 1) 4 s m n count / memory rate
//                + (accumulates) accumulationExposed 2 resultBytes m n count / memory rate
//                + launchOverhead
//
// A multiprocessor works on one tile at a time. E: a tile does tm tn products for tm + tn elements
// that have to be brought to it. The ramp fills and drains a tile. Splitting the depth gives more
// tiles, whose sums in f32 go through memory. Tiles, waves and split depth as in CUTLASS
// ("Efficient GEMM in CUDA"; NVIDIA, "Matrix Multiplication Background User's Guide").
//
// `share` is what else stands between this product and matmulEfficiency (batches of small ones).
// Without a number of multiprocessors, and on hosts, it is the roofline
// max(flops / (peak matmulEfficiency share), bytes / memory rate) + launchOverhead.
Seconds productTime(const ProductShape& shape, FlopsPerSecond peak, const spec::DeviceSpec& device,
                    double share = 1);

// Time of a kernel that only moves bytes.
Seconds streamTime(Bytes bytes, const spec::DeviceSpec& device);

}  // namespace trireme::cost
