// Where training samples come from.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace trireme::runtime {

// A pure function from a global sample index (step * globalBatchSize + index within the batch) to a
// sample, so that neither the plan nor a restart changes what is trained on.
class DataSource {
 public:
  virtual ~DataSource() = default;

  // Writes tokens[i * stride] and labels[i * stride] for i in [0, length); the label of a token is
  // the token that follows it. Either pointer may be null: not wanted. Called by all ranks at once.
  // kInvalidArgument: the sample cannot be formed (too short, unreadable, token out of vocabulary).
  virtual Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                        int32_t* labels) = 0;

  // What the samples are made of, in words: equal for sources that give the same samples.
  // Checkpoints keep it. Empty: not known.
  virtual std::string identity() const { return {}; }
};

}  // namespace trireme::runtime
