// Reads what nccl-tests print (github.com/NVIDIA/nccl-tests), into curves of a cluster file.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"

namespace trireme::cost {

// One run of a test: a collective over a range of sizes.
struct NcclSweep {
  spec::CollectiveKind kind = spec::CollectiveKind::kAllReduce;
  int64_t numRanks = 0;
  std::vector<int64_t> ranksOnHosts;  // of each host; empty where the text does not say
  std::string gpu;                    // "NVIDIA A100-SXM4-80GB"; empty where the text does not say
  std::vector<spec::CollectivePoint> points;  // out of place; bytes strictly increasing
  int line = 0;                               // where it starts

  // 1 also where the text does not say.
  int64_t numHosts() const { return std::max<int64_t>(1, std::ssize(ranksOnHosts)); }
};

inline constexpr size_t kMaxNcclBytes = size_t{16} << 20;  // of a text; a longer one is refused

// All sweeps of a text, which is the output of all_reduce_perf, all_gather_perf,
// reduce_scatter_perf, alltoall_perf or sendrecv_perf, or of several, one after the other. `name`
// is the file's. Which test it was says the line "# Collective test starting: all_reduce_perf" or,
// of versions that do not print it, the file's name ("node4.all_reduce_perf.txt",
// "all_reduce.txt"). The number of ranks is that of the lines "#  Rank  0 ...".
//
// Strict, so that nothing is read as something else. From the table's head to the summary below it
// a line that is neither empty nor one of NCCL's own ("NCCL version", "NCCL INFO") must be a
// comment that starts with '#' or a row of numbers; around it launchers may print what does not
// begin with a number. mpirun's tags ("[1,0]<stdout>:") are no part of a line. The bus bandwidth of
// a row must follow from its size, its time and the number of ranks (CollectiveKind); no result may
// be wrong, in place or out of place. Rows of size 0 are left out.
//
// kInvalidArgument, with file and line: what is wrong, and what was expected.
Result<std::vector<NcclSweep>> parseNcclTests(const std::string& text, const std::string& name);

// Devices of the sweep in each block of the tier before, where they did not fill these; otherwise
// 0. Requires as many on every host.
int64_t perBlockOf(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep);

// Switches that add up reach more of a link than its rate, by the count of nccl-tests; nothing many
// times as much, and large messages more than a thousandth of it. kInvalidArgument: some point says
// otherwise.
Status checkBandwidth(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep);

// Puts the sweep, with `source`, into tiers[tier] in place of a curve of the same collective and
// group. kInvalidArgument: the tier does not hold as many devices, a host has more ranks than
// devices, or hosts have not as many ranks each.
Status addSweep(spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep,
                const std::string& source);

// What the largest messages of a sweep that was added reach of the tier's line rate, which groups
// without a curve go by.
// kInvalidArgument: why it does not follow: blocks were not full, or links inside are no faster
// than what was measured; messages do not reach kLargeMessage; the collective moves other bytes
// than a ring, as a switch's all-reduce does that beats the line rate.
//
//   bus bandwidth = line rate x efficiency / oversubscription x devices in a block inside
Result<double> efficiencyOf(const spec::ClusterSpec& cluster, size_t tier, const NcclSweep& sweep);
inline constexpr Bytes kLargeMessage(64.0 * 1024 * 1024);

}  // namespace trireme::cost
