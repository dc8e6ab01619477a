// From a published row to what the cost models ask for. What a row does not say is settled by the
// rules here and by no others; each that was used is named in RunQuery::assumptions.
#pragma once
#include <string>
#include <vector>

#include "cost_models/validation/catalogue.h"
#include "cost_models/validation/row.h"
#include "ir/base/status.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

struct RunQuery {
  spec::ModelSpec model;
  spec::ClusterSpec cluster;
  spec::StackProfile stack;
  plan::Plan plan;                       // legal: verifyPlan accepts it
  std::vector<std::string> assumptions;  // "(R4) kv_heads unpublished: as many as heads"
};

// Model
// (R1)  stack, gpu, gpus, model, layers, hidden, heads, seq, global_batch, micro_batch, tp, pp and
//       precision have to be there; dp is gpus / (tp pp cp) and cp 1 if they are not.
// (R2)  Dense models only: a row with experts is skipped, and so is one with ep and none.
// (R3)  What a model is follows from its name: llama, mistral, qwen, yi, gemma: RMSNorm, SwiGLU,
//       rotary positions, no biases (qwen before qwen3: on query, key, value), an output table of
//       its own (gemma: the embedding's); nemotron: LayerNorm, one activated matrix, rotary, no
//       biases, an output table of its own; mpt: as GPT without biases; gpt, bloom, opt, mt-nlg:
//       GPT. Any other name: as llama if the row has fewer kv_heads than heads or an ffn other than
//       4 hidden, else GPT.
// (R4)  kv_heads unpublished: as many as heads. ffn: 4 hidden, of GPT models; others are skipped.
//       vocab: 51200, GPT-2's 50257 as Megatron pads them.
// (R5)  max_sequence is seq. No column says the head size, which is hidden / heads (qwen3: 128),
//       nor whether embedding and output share a table. If params_b is not the count of that model
//       to its digits (isCountOf) it is looked for with heads of 64, 80, 96, 128 and 256 and the
//       other kind of table, the fewest changes first; of several that make it none is taken. Nor
//       is it looked for where vocab or, but for GPT models and mpt, kv_heads is assumed. A head
//       size that params_b does not settle is an assumption.
//
// Plan
// (R6)  Layers are cut evenly; if they do not divide by pp vp and two more would, embedding and
// head
//       stand for a layer each: the first and the last virtual stage have one less. Models of more
//       than 65,536 layers are skipped.
// (R7)  ZB-1p and ZB-2p are zb-h1 and zb-h2, drawn by hand where a search was published; vp above 1
//       is interleaved 1F1B; otherwise the schedule is 1F1B but for GPipe. vp
// unpublished
//       is 1, but for NeMo, whose recipes give every chunk one layer, if the schedule is
//       unpublished too and pp divides the layers. "interleaved" without vp is skipped, and so are
//       zero bubble and a vp that the schedule cannot have.
// (R8)  zero 0: replicated; 1 sharded optimizer, 2 gradients, 3 parameters, over all of dp. On one
//       replica nothing is shared. Unpublished: 0, but for Alpa 1, whose solver shards the update:
//       its published peaks of memory are 4 to 6 % above what level 1 takes on two and four
//       replicas, and 5 % on one, where no level counts; level 0 would take 1.4 to 2 times them.
// (R9)  seq_parallel unpublished: on for tp > 1 under NeMo and torchtitan, off elsewhere; with tp 1
//       there is none.
// (R10) recompute unpublished: none. Rows of vTrain's single-node file state the "full" of a
//       simulator's configuration, but their times hold no second forward: what a layer takes more
//       at hidden size 2,048 than at 1,024 would be 96 % of the GPU's peak with one, and is 72 %
//       without (tp 1, from 4 to 8 sequences): none. The rule knows these rows by the name of their
//       source.
// (R11) Megatron's family (megatron*, nemo) pads the vocabulary to a multiple of 128 tp, others to
// a
//       multiple of tp.
// (R12) Scatter-gather wherever the stack does it and the plan allows it.
// (R13) fp8 of any recipe is fp8; NVFP4 is skipped, and so is what the stack does not train in.
// (R14) GPT models under Megatron-LM, DeepSpeed and Alpa train with dropout 0.1 on attention,
//       residuals and embedding, as their scripts do; others without.
//
// (R15) A row that contradicts itself is skipped: iter_time_s and tokens_per_s_per_gpu more than a
//       fiftieth apart, or params_b more than a quarter from what the model's sizes make. Nearer
//       ones that (R5) does not explain are an assumption, but for the hundredth that counts leave
//       out (biases, norms, positions).
// (R16) Until 2024 torchtitan did not compile its loss, whatever else it did: eager_logit_bytes.
//
// kInvalidArgument: the row has to be skipped; the message says why: what is missing or contradicts
// itself, or the rule that the plan breaks.
Result<RunQuery> queryOf(const Row& row, const Catalogue& catalogue);

}  // namespace trireme::cost
