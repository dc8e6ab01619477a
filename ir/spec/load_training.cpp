#include <fmt/format.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/spec/checks.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/precision_names.h"
#include "ir/spec/shipped.h"

namespace trireme::spec {
namespace {

// Absent means "the command line says"; a written 0 is a mistake.
void readGiven(MapReader& map, std::string_view key, int64_t* out) {
  const Node* node = map.child(key);
  if (!node) return;
  map.required(key, out);
  if (*out == 0) map.fail(*node, "must be at least 1 (left out it is a flag's: --seq, --batch)");
}

// Settings of one precision that another has no use for.
void readPrecisionSettings(MapReader& map, TrainingSpec* t) {
  map.optional("tf32", &t->tf32);
  map.optional("initial_loss_scale", &t->initialLossScale);
  map.optional("loss_scale_window", &t->lossScaleWindow);
  map.optional("min_loss_scale", &t->minLossScale);
  if (t->precision == Precision::kFp16) return;
  for (const std::string_view key : {"initial_loss_scale", "loss_scale_window", "min_loss_scale"})
    if (const Node* node = map.child(key))
      map.fail(*node, fmt::format("the loss is scaled in fp16 only, and precision is {}",
                                  precisionName(t->precision)));
}

}  // namespace

std::string_view precisionName(Precision precision) { return nameOf(kPrecisions, precision); }

std::string precisionText(const TrainingSpec& training) {
  return fmt::format("{}{}", precisionName(training.precision), training.tf32 ? " with tf32" : "");
}

Result<TrainingSpec> readTraining(const std::string& file, const Node& node,
                                  const std::string& path, Precision usual) {
  MapReader map(file, node, path);
  TrainingSpec t;
  t.precision = usual;
  map.optional("precision", kPrecisions, &t.precision);
  map.optional("seed", &t.seed);
  readGiven(map, "sequence_length", &t.sequenceLength);
  readGiven(map, "global_batch_size", &t.globalBatchSize);
  map.optional("embedding_dropout", &t.embeddingDropout);
  map.optional("attention_dropout", &t.attentionDropout);
  map.optional("residual_dropout", &t.residualDropout);
  map.optional("learning_rate", &t.learningRate);
  map.optional("min_learning_rate", &t.minLearningRate);
  map.optional("warmup_steps", &t.warmupSteps);
  map.optional("decay_steps", &t.decaySteps);
  map.optional("beta1", &t.beta1);
  map.optional("beta2", &t.beta2);
  map.optional("epsilon", &t.epsilon);
  map.optional("weight_decay", &t.weightDecay);
  map.optional("clip_norm", &t.clipNorm);
  readPrecisionSettings(map, &t);
  TRIREME_RETURN_IF_ERROR(map.finish());
  if (const std::optional<Problem> problem = findProblem(t)) return Error(map.errorFor(*problem));
  return t;
}

Result<TrainingSpec> parseTraining(const std::string& text, const std::string& name,
                                   Precision usual) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  return readTraining(name, root, "", usual);
}

std::string printTraining(const TrainingSpec& t) {
  std::string text;
  auto line = [&](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("precision", precisionName(t.precision));
  line("seed", t.seed);
  if (t.sequenceLength != 0) line("sequence_length", t.sequenceLength);
  if (t.globalBatchSize != 0) line("global_batch_size", t.globalBatchSize);
  line("embedding_dropout", t.embeddingDropout);
  line("attention_dropout", t.attentionDropout);
  line("residual_dropout", t.residualDropout);
  line("learning_rate", t.learningRate);
  line("min_learning_rate", t.minLearningRate);
  line("warmup_steps", t.warmupSteps);
  line("decay_steps", t.decaySteps);
  line("beta1", t.beta1);
  line("beta2", t.beta2);
  line("epsilon", t.epsilon);
  line("weight_decay", t.weightDecay);
  line("clip_norm", t.clipNorm);
  if (t.tf32) line("tf32", t.tf32);
  if (t.precision == Precision::kFp16) {
    line("initial_loss_scale", t.initialLossScale);
    line("loss_scale_window", t.lossScaleWindow);
    line("min_loss_scale", t.minLossScale);
  }
  return text;
}

namespace {

bool hasShapeOf(const ModelSpec& a, const ModelSpec& b) {
  const auto shape = [](const ModelSpec& m) {
    return std::tuple(m.numLayers, m.hiddenSize, m.ffnSize, m.numHeads, m.numKvHeads, m.headSize,
                      m.vocabSize);
  };
  return shape(a) == shape(b);
}

// What takes sequences of such a length: the shipped model of the same shape that does, if any.
std::string longerThan(const ModelSpec& model, int64_t sequence) {
  static const std::vector<ModelSpec> shipped = [] {  // a sweep may ask of many points
    std::vector<ModelSpec> models;
    for (const std::string& name : shippedNames(ShippedKind::kModel))
      if (auto other = loadModel(name)) models.push_back(*std::move(other));
    return models;
  }();
  for (const ModelSpec& other : shipped)
    if (other.maxSequence >= sequence && hasShapeOf(other, model))
      return fmt::format("model {}, of the same shape", other.name);
  return "a copy of the model with a longer one";
}

}  // namespace

Status verifyTraining(const TrainingSpec& training, const ModelSpec& model) {
  if (const std::optional<Problem> problem = findProblem(training))
    return invalidArgument(fmt::format("{}: {}", problem->key, problem->message));
  if (training.sequenceLength == 0) return invalidArgument("sequence_length: not given");
  if (training.globalBatchSize == 0) return invalidArgument("global_batch_size: not given");
  if (training.sequenceLength > model.maxSequence)
    return invalidArgument(fmt::format(
        "sequence_length: {0} exceeds the model's max_sequence ({1}); nearest: {1}, or {2}",
        training.sequenceLength, model.maxSequence, longerThan(model, training.sequenceLength)));
  return {};
}

}  // namespace trireme::spec
