// The model and the plan that the tests of programs start from.
#pragma once
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/support/small_plan.h"

namespace trireme::expand {

inline spec::ModelSpec gpt(int64_t layers = 4) {
  spec::ModelSpec model = small::gpt(layers, 32, 4);
  model.vocabSize = 128;
  model.maxSequence = 16;
  return model;
}

// In fp32, four microbatches of two samples.
inline plan::Plan planFor(const spec::ModelSpec& model, int64_t tp, int64_t pp, int64_t dp) {
  spec::TrainingSpec training = small::training(8 * dp, 16);
  training.precision = spec::Precision::kFp32;
  plan::Plan plan = small::plan(model, training, tp, pp, dp);
  plan.microbatchSize = 2;
  plan.vocabMultiple = 1;
  return plan;
}

// Of what must be legal.
inline Expansion expanded(const spec::ModelSpec& model, const plan::Plan& plan) {
  auto expansion = expand(model, plan);
  if (!expansion) throw std::runtime_error(expansion.error().message());
  EXPECT_EQ(program::verifyProgram(expansion->program).message(), "");
  return std::move(*expansion);
}
inline program::Program programOf(const plan::Plan& plan) { return expanded(gpt(), plan).program; }

}  // namespace trireme::expand
