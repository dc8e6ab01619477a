// What tests of exports share: the plans of plans/, and a model that torchtitan has too.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "codegen/export/export.h"
#include "ir/spec/load.h"
#include "tests/support/small_plan.h"

namespace trireme::codegen {

using plan::Plan;

inline const std::string kFolder = TRIREME_SOURCE_DIR "/tests/export/";
inline constexpr Framework kFrameworks[] = {Framework::kMegatron, Framework::kNemo,
                                            Framework::kTorchtitan, Framework::kDeepspeed,
                                            Framework::kAccelerate};

inline Plan loadPlan(const std::string& name) {
  const Result<Plan> plan = plan::loadPlan(kFolder + "plans/" + name + ".yaml");
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  return *plan;
}

inline spec::ModelSpec loadModel(const Plan& plan) { return spec::loadModel(plan.model).value(); }

inline spec::ModelSpec flavored() {
  spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  model.maxSequence = 128;
  return model;
}

}  // namespace trireme::codegen
