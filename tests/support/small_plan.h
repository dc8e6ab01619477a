// Plans of small models, and the settings that they train with.
#pragma once
#include "ir/plan/plan.h"
#include "ir/spec/training_spec.h"
#include "tests/support/small_model.h"

namespace trireme::small {

inline spec::TrainingSpec training(int64_t batch = 16, int64_t sequence = 32) {
  spec::TrainingSpec training;
  training.precision = spec::Precision::kBf16;
  training.globalBatchSize = batch;
  training.sequenceLength = sequence;
  return training;
}

inline plan::Plan plan(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                       int64_t tp = 1, int64_t pp = 1, int64_t dp = 1) {
  plan::Plan plan;
  plan.model = model.name;
  plan.fingerprint = plan::fingerprintOf(model);
  plan.training = training;
  plan.tp = tp;
  plan.pp = pp;
  plan.dpReplicate = dp;
  plan.layers = plan::evenLayers(model.numLayers, pp, 1);
  return plan;
}

inline plan::Plan interleaved(plan::Plan plan, const spec::ModelSpec& model, int64_t v) {
  plan.schedule = plan::ScheduleKind::kInterleaved;
  plan.virtualStages = v;
  plan.layers = plan::evenLayers(model.numLayers, plan.pp, v);
  return plan;
}

}  // namespace trireme::small
