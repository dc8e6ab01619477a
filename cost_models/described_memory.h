// Memory of the ranks of a program that Trireme does not make.
#pragma once
#include "cost_models/described_blocks.h"
#include "cost_models/memory.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

// Whether gathered parameters and unreduced gradients of a stage are there whole, through the step.
bool keepsWhole(const plan::Plan& plan, const spec::StackDescription& stack);

// Parameters of one rank of pipeline rank `stage`: its layers, and the tables that it holds. A
// table tied over two stages is there twice, one tied within a stage once.
double parametersOfStage(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                         const plan::Plan& plan, size_t stage);

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
// Selective recomputation of every other layer: half of this and half of a layer's input; by
// operators: T (2 h) and T (2 q + kv + f) / tp. With full recomputation only the layer's input.
Bytes keptByLayer(const spec::ModelSpec& model, const plan::Plan& plan,
                  const spec::StackDescription& stack);

// One rank of pipeline rank `stage`:
//   parameters, gradients, optimizer  bytes per parameter of the description, each divided by the
//                                     ranks that share it
//   activations    what microbatches in flight keep at most at once (in_flight.h); with
//   recomputation one
//                  layer in full besides; with sequence parallelism, once, an operand that is
//                  gathered and a gradient that is to be scattered, each T h; logits of one
//                  microbatch on the last stage; with sharded parameters those of two layers,
//                  gathered, or where keepsWhole() those of the stage and their gradients
//   reserve        the description's, and its fragmentation of all the rest
MemoryUse describedMemoryOf(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                            const plan::Plan& plan, const spec::StackDescription& stack,
                            size_t stage);

// The pipeline rank with the largest total; of several the first.
MemoryUse describedMemory(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                          const plan::Plan& plan, const spec::StackDescription& stack);

}  // namespace trireme::cost
