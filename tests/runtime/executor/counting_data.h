// Token s of sample i is (i + s) modulo the vocabulary.
#pragma once
#include "runtime/data/data_source.h"

namespace trireme::runtime {

class CountingData final : public DataSource {
 public:
  explicit CountingData(int32_t vocabSize = 1000) : vocabSize_(vocabSize) {}
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    for (int64_t s = 0; s < length; ++s) {
      const auto token = static_cast<int32_t>((index + static_cast<uint64_t>(s)) %
                                              static_cast<uint64_t>(vocabSize_));
      if (tokens != nullptr) tokens[s * stride] = token;
      if (labels != nullptr) labels[s * stride] = (token + 1) % vocabSize_;
    }
    return {};
  }

 private:
  int32_t vocabSize_;
};

}  // namespace trireme::runtime
