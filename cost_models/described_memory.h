// Memory of the ranks of a program that Trireme does not make.
#pragma once
#include "cost_models/described_blocks.h"
#include "cost_models/described_estimate.h"
#include "cost_models/memory.h"
#include "ir/plan/plan.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// Whether gathered parameters and unreduced gradients of a stage are there whole, through the step.
bool keepsWhole(const plan::Plan& plan, const spec::StackDescription& stack);
// Whether gradients alone are shared, and parameters are gathered as copies beside the shares:
// FSDP2 that reshards after each backward (parameterTraffic), not ZeRO-2, whose parameters are
// whole.
bool gathersForPasses(const plan::Plan& plan, const spec::StackDescription& stack);
// Bytes of parameters that a rank keeps through the step for each of its own, which so many ranks
// share: with shared gradients all of them, or where copies are gathered (parameterTraffic) all
// copies beside its share.
double keptParameterBytes(const spec::StackDescription& stack, plan::StateSharding sharding,
                          double shards);
// Whether torch.autocast casts the parameters of products (autocastBytes): nothing is shared, nor
// divided.
bool autocasts(const plan::Plan& plan, const spec::StackDescription& stack);
// Per parameter, beside the gradients of ranks that share nothing with others.
double bucketBytes(const plan::Plan& plan, const spec::StackDescription& stack);

// Parameters of one rank of pipeline rank `stage`: its layers, and the tables that it holds. A
// table tied over two stages is there twice, one tied within a stage once.
double parametersOfStage(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                         const plan::Plan& plan, size_t stage);

// Per weight of a layer, beside its parameter: StackDescription::f8CopyBytes. 0 but in fp8.
double f8CopyBytes(const plan::Plan& plan, const spec::StackDescription& stack);

// What a layer keeps of one microbatch for its backward, on one rank. Elements of e bytes, T
// tokens, h hidden, a heads of size d, k of them for keys, f the width of the activation;
// everything but the residual stream divided by tp, that by tp with sequence parallelism:
//   GPT     T (8 h + masks 2 h / e) and T (q + 2 kv + a d + 2 f) / tp   (Korthikanti et al. 2022:
//           34 s b h at e = 2, without scores)
//   Llama   T (4 h) and T (q + 2 kv + a d + 3 f) / tp
//   scores  without flash attention b a s^2 / (tp cp) (2 e + 1), e without dropout; not kept with
//           selective recomputation of attention
//   f8      with keepsNarrow the inputs of products (two norms' results and the activation's) take
//           one byte, and attention's result is there in both forms
//   gathered   with keepsGatheredInputs and sequence parallelism what was gathered for products,
//              2 h of 4 h, is not divided by tp; one byte where it is gathered in f8
//   weights    with keepsGatheredWeights and shared parameters those of its products, as they are
//              gathered, h (2 a d + 2 kv + 2 f) / tp, 3 f with a gate
//   autocast   the residual stream, 2 h of both, in f32
//   eager      with eagerLayers f of a gated MLP and 2 (a d - kv) of repeated keys and values more,
//              all divided by tp; with eagerNorms T 2 h in f32 more (Llama 2 7B, 4,096 tokens:
//              (2 f + 8 h) x 4,096 x 32 = 7.18 GB; PyTorch took 47.45 GB uncompiled, 40.21
//              compiled: github.com/Lightning-AI/lightning-thunder/pull/940)
// Selective recomputation of every other layer: half of this and half of a layer's input; by
// operators: T (2 h) and T (2 q + kv + f) / tp. With full recomputation only the layer's input.
Bytes keptByLayer(const spec::ModelSpec& model, const plan::Plan& plan,
                  const spec::StackDescription& stack);

// The same from its backward until the gradients of its matrices are made, where the backward is
// split: what the four products read, and the gradients of what they made,
//   T (4 h) and T (2 a d + 2 kv + f + u) / tp, u = f or, with a gate, 2 f   (Qi et al. 2024: 32 s b
//   h)
Bytes keptForWeights(const spec::ModelSpec& model, const plan::Plan& plan);

// What a rank holds of a GPU that the allocator does not count: the description's reserve and
// what NCCL takes for connections to peers, each StackDescription::ncclConnection, as
// program::ncclConnections() estimates them from the fastest links between members of a group:
//   collectives  over tp, cp, and the ranks that hold the same parameters; with HSDP those that
//                share state and those that hold the same part
//   messages     there and back, with each neighbouring stage: of more than two stages with two
// At least, for frameworks may open more communicators. As one DeepSpeed run with ZeRO-3 ended on
// nodes of four A100, of 79.17 GiB 77.24 were the allocator's and 0.37 free: 1.56 GiB
// (github.com/deepspeedai/DeepSpeed/issues/2899, seen 2026-11-23); this says 1.55.
Bytes describedReserve(const plan::Plan& plan, const spec::ClusterSpec& cluster,
                       const spec::StackDescription& stack);
// Of every rank of a plan of those degrees at least so much.
Bytes leastDescribedReserve(int64_t tp, int64_t pp, int64_t dp, const spec::ClusterSpec& cluster,
                            const spec::StackDescription& stack);

// One rank of pipeline rank `stage`:
//   parameters, gradients, optimizer  bytes per parameter of the description, each divided by the
//                                     ranks that share it (keptParameterBytes); with f8CopyBytes()
//                                     of layers, what autocast keeps of layers and head, and
//                                     bucketBytes()
//   activations    what microbatches in flight keep at most at once (in_flight.h); with
//                  recomputation one layer in full besides; with sequence parallelism, once, an
//                  operand that is gathered and a gradient that is to be scattered, each T h (with
//                  keepsGatheredInputs two such gradients); logits of one microbatch on the last
//                  stage; with sharded parameters those of two layers, gathered, or where
//                  keepsWhole() those of the stage and their gradients; with shared gradients of
//                  gathered copies those of one layer; the loader's mask, b s^2 / cp, and with
//                  cp > 1 the whole from which it is cut; full recomputation and that of attention
//                  keep it while a microbatch is in flight (arguments of a checkpoint). Or, if that
//                  is more, what the optimizer's step takes (stepGradientBytes), when all else of
//                  this is gone
//   reserve        describedReserve(), and the description's fragmentation of all the rest
MemoryUse describedMemoryOf(const StageSetting& setting, size_t stage);
// Of its activations what is there beside microbatches in flight, and what the step takes instead
// for so many parameters.
Bytes workingMemory(const StageSetting& setting, size_t stage);
Bytes stepGradients(const StageSetting& setting, double parameters);

// The pipeline rank with the largest total; of several the first.
MemoryUse describedMemory(const StageSetting& setting);

}  // namespace trireme::cost
