// Which window of the data is sample number i: a pure function, so that a restart continues
// exactly.
#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::runtime {

enum class SampleOrder : uint8_t {
  kRandom,      // a sample starts anywhere: drawn from (seed, i)
  kShuffled,    // windows side by side, each once per epoch, in an order drawn from (seed, epoch)
  kSequential,  // the same windows in the order of the data
};

std::string_view sampleOrderName(SampleOrder order);  // "random", "shuffled", "sequential"

// Where sample `index` starts in data of `total` tokens. Windows are `length` long and share no
// token but the last label; what is left behind the last whole one is never seen. Requires
// total > length >= 1.
int64_t samplePosition(SampleOrder order, uint64_t seed, uint64_t index, int64_t length,
                       int64_t total);

}  // namespace trireme::runtime
