// Specs that tests of costs and of the planner share: small enough to check by hand.
#pragma once
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/training_spec.h"

namespace trireme::small {

inline spec::ModelSpec gpt(int64_t layers = 8, int64_t hidden = 64, int64_t heads = 4) {
  spec::ModelSpec model;
  model.name = "small-gpt";
  model.numLayers = layers;
  model.hiddenSize = hidden;
  model.numHeads = model.numKvHeads = heads;
  model.headSize = hidden / heads;
  model.ffnSize = 4 * hidden;
  model.vocabSize = 512;
  model.maxSequence = 128;
  return model;
}

inline spec::TrainingSpec training(int64_t batch = 16, int64_t sequence = 32) {
  spec::TrainingSpec training;
  training.precision = spec::Precision::kBf16;
  training.globalBatchSize = batch;
  training.sequenceLength = sequence;
  return training;
}

// Blocks of `perNode` fast-linked devices: 10 TFLOP/s, 1 TB/s, 100 GB/s within, 10 GB/s between.
inline spec::ClusterSpec cluster(int64_t devices = 8, int64_t perNode = 4) {
  using namespace literals;
  spec::ClusterSpec cluster;
  cluster.name = "small";
  cluster.numDevices = devices;
  cluster.device.name = "device";
  cluster.device.matmul = {{MathFormat::kBf16, FlopsPerSecond(10e12)},
                           {MathFormat::kF32, FlopsPerSecond(5e12)}};
  cluster.device.memory = 16_GiB;
  cluster.device.memoryBandwidth = 1000_GBps;
  cluster.device.launchOverhead = 1_us;
  if (perNode < devices) cluster.tiers.push_back({"inner", perNode, 100_GBps, 2_us});
  cluster.tiers.push_back({"outer", devices, 10_GBps, 5_us});
  return cluster;
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
