// Where training samples come from.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace trireme::runtime {

// A pure function from a global sample index (step * globalBatchSize + index within the batch) to a
// sample, so that neither the plan nor a restart changes what is trained on.
class DataSource {
 public:
  DataSource() : instance_(nextInstance()) {}
  virtual ~DataSource() = default;

  // Writes tokens[i * stride] and labels[i * stride] for i in [0, length); the label of a token is
  // the token that follows it. Either pointer may be null: not wanted. Called by all ranks at once,
  // on GPUs within a step for the samples of the next one too.
  // kInvalidArgument: the sample cannot be formed (too short, unreadable, token out of vocabulary).
  virtual Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                        int32_t* labels) = 0;

  // What the samples are made of, in words: equal for sources that give the same samples.
  // Checkpoints keep it. Empty: not known.
  virtual std::string identity() const { return {}; }

  // Of this object and its copies, and of no other of this process, not even one that is gone.
  uint64_t instance() const { return instance_; }

 private:
  static uint64_t nextInstance() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }
  uint64_t instance_;
};

}  // namespace trireme::runtime
