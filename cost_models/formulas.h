// The field's closed formulas: sizes and work of a transformer, from its spec alone.
// Source of the equations: Narayanan et al., "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", SC 2021 (arXiv 2104.04473).
#pragma once
#include <cstdint>

#include "ir/base/units.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/training_spec.h"

namespace trireme::cost {

// A count, as a factor.
inline double asDouble(int64_t count) { return static_cast<double>(count); }

// The letters of the paper.
struct GptShape {
  double layers = 0;    // l
  double hidden = 0;    // h
  double vocab = 0;     // V
  double sequence = 0;  // s
};

// Eq. 2:  P = 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h))
double gptParameters(const GptShape& shape);

// Eq. 3:  F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h))    per step, with full recomputation
// Without recomputation: 72 for 96 and V / (12 l h) for V / (16 l h).
Flops gptFlops(const GptShape& shape, double globalBatch, bool fullRecompute);

// Eq. 4:  training time = 8 T P / (n X), T tokens, n devices that reach X each (full recomputation)
Seconds trainingTime(double tokens, double parameters, double devices, FlopsPerSecond reached);

// The parts of modelFlops.
struct StepFlops {
  Flops layers;     // matrix products with weights
  Flops attention;  // the s x s products
  Flops head;       // logits
};
StepFlops stepFlops(const spec::ModelSpec& model, const spec::TrainingSpec& training);

// The convention of modelFlops in short: N weights of matrix products, L layers, h = heads x head
// size, s tokens per sequence (Chowdhery et al. 2022, PaLM, appendix B).
inline constexpr char kModelFlopsConvention[] = "6 N + 12 L h s a token, attention in full";

// Work of one step that any program must do, counted as the field counts model FLOPs: forward and
// twice that for backward, matrix products only, attention in full (causality not deducted), no
// recomputation, no padding. For GPT this is Eq. 3 without recomputation.
Flops modelFlops(const spec::ModelSpec& model, const spec::TrainingSpec& training);

}  // namespace trireme::cost
