// Data to train on, and what a training is compared by.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/session.h"

namespace trireme::equivalence {

// Deterministic text-like tokens: a noisy periodic sequence, so that the loss can fall.
class SyntheticData : public runtime::DataSource {
 public:
  explicit SyntheticData(int64_t vocabSize) : vocabSize_(vocabSize) {}
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override;

 private:
  int64_t vocabSize_;
};

// |difference| <= relative * (largest of the tensor) + ofNorm * (global norm), for each element of
// each tensor. Tensors named in `skip` by suffix are left out. The message names the worst tensor.
struct Tolerance {
  double relative = 0;
  double ofNorm = 0;
};
std::string compareTensors(const std::vector<runtime::NamedTensor>& expected,
                           const std::vector<runtime::NamedTensor>& actual,
                           const Tolerance& tolerance);
std::string compareLosses(const std::vector<double>& expected, const std::vector<double>& actual,
                          double relative);
// Of the angle between all tensors of one side and all of the other, each taken as one vector.
double cosine(const std::vector<runtime::NamedTensor>& a,
              const std::vector<runtime::NamedTensor>& b);

}  // namespace trireme::equivalence
