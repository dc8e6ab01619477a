// What nccl-tests print, with numbers made up so that they can be checked by hand.
#pragma once
#include <string>

namespace trireme::cost {

inline const std::string kAllReduceOutput =
    "NCCL version 2.18.1+cuda12.1\n"
    "# Collective test starting: all_reduce_perf\n"
    "# nThread 1 nGpus 4 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid 10 on host device  0\n"
    "#  Rank  1 Group  0 Pid 10 on host device  1\n"
    "#  Rank  2 Group  0 Pid 10 on host device  2\n"
    "#  Rank  3 Group  0 Pid 10 on host device  3\n"
    "#                                                       out-of-place          in-place\n"
    "#       size    count  type redop root    time  algbw  busbw #wrong     time  algbw  busbw "
    "#wrong\n"
    "#        (B)  (elements)                  (us) (GB/s) (GB/s)            (us) (GB/s) (GB/s)\n"
    "     1048576   262144 float   sum   -1   100.0  10.49  15.73      0    100.5  10.43  15.65    "
    "  "
    "0\n"
    "     4194304  1048576 float   sum   -1   250.0  16.78  25.17      0    249.0  16.84  25.27    "
    "  "
    "0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 20.45\n"
    "#\n";

inline const char* const kSendOutput =
    "# Collective test starting: sendrecv_perf\n"
    "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 4(factor) warmup iters: 5\n"
    "#  Rank  0 Group  0 Pid 10 on host device  0\n"
    "#  Rank  1 Group  0 Pid 10 on host device  1\n"
    "#       size    count  type redop root    time  algbw  busbw #wrong     time  algbw  busbw "
    "#wrong\n"
    "     1048576   262144 float  none   -1    50.0  20.97  20.97      0    51.0  20.56  20.56    "
    "N/A\n";

}  // namespace trireme::cost
