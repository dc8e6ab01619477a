// What a program of others does and costs in a step, for stack_profile.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/units.h"
#include "ir/spec/attention_kind.h"

namespace trireme::spec {

// How the weight gradient of a microbatch gets into the gradient buffer.
enum class GradientAccumulation : uint8_t {
  kFusedF32,     // by the matrix product itself, in f32
  kSeparateF32,  // by a pass of its own, into f32
  kSeparateLow,  // by a pass of its own, in the compute dtype
};

// What selective recomputation computes again.
enum class SelectiveRecompute : uint8_t {
  kAttention,    // everything behind its inputs; a fused kernel keeps no more without it
  kEveryOther,   // every second layer in full
  kPerOperator,  // elementwise ops and every second matrix product; attention is kept
};

// Passed on from rank to rank, beside attention to those that are there; or gathered by all at
// once, beside attention to a rank's own.
enum class ContextExchange : uint8_t { kRing, kAllGather };
// When replicas of parameters, or of shards of them, exchange gradients, without a pipeline:
// torch's DDP and FSDP do so in the backward of every microbatch where nobody asks for no_sync().
enum class ReplicaReduction : uint8_t { kPerStep, kOfShardsPerMicrobatch, kPerMicrobatch };

// A step of a program that Trireme does not make itself: which kernels run, what they move and what
// hides behind what. Shares are of time, between 0 and 1. Times of kernels are the device's.
// Published peaks of software that others make are 3.0 to 6.7 % off on average, by source
// (cost_models/VALIDATION.md), and frameworks' own fragments come on top.
inline constexpr double kUsualMemoryDoubt = 0.07;

struct StackDescription {
  AttentionKind attention = AttentionKind::kFlash;
  // Instead of a fused kernel that needs what the precision or the device lacks
  // (stack_on_device.h).
  AttentionKind attentionElsewhere = AttentionKind::kUnfused;
  SelectiveRecompute selective = SelectiveRecompute::kAttention;
  // What elementwise ops and norms of a layer move, over what they do with every chain fused into
  // one kernel (described_blocks.h).
  double elementwiseFactor = 1;
  // Matrix products over the device's matmulEfficiency: libraries of other years.
  double matmulFactor = 1;
  double f8MatmulFactor = 1;  // and over the device's f8MatmulEfficiency of those in fp8
  // Bytes moved per element to bring an operand of a product into fp8: maxima, casts, transposes.
  double castBytes = 8;
  // Of tensor parallelism: what products in fp8 take is gathered in fp8, not in the compute dtype.
  bool gathersF8Activations = true;
  // Of context parallelism: how keys and values come to all ranks, and what every one of the cp - 1
  // further steps moves per element of its results, which are put together: of the context forward,
  // of the gradients of queries, keys and values backward.
  ContextExchange contextExchange = ContextExchange::kRing;
  double ringBytes = 0;
  // What fused attention to the keys of other ranks reaches of the rate on a rank's own.
  double blockAttentionEfficiency = 1;
  GradientAccumulation gradientAccumulation = GradientAccumulation::kFusedF32;
  bool scatterGather = false;  // sends 1/tp of a replicated border between stages

  // Per parameter on the device.
  double parameterBytes = 2, gradientBytes = 4, optimizerBytes = 12;
  // Of gradients in bf16, if it is not as in fp16: sums in f32 beside what a backward leaves. 0: it
  // is.
  double bf16GradientBytes = 0;
  double reducedGradientBytes = 4;  // per parameter that data-parallel ranks exchange
  double gatheredParameterBytes = 2;
  // Where nothing is shared: copies of all gradients in buckets that replicas exchange, and of
  // parameters in 16 bits, which torch.autocast keeps from a forward to its backward. With the
  // latter the residual stream is in f32.
  double bucketBytes = 0, autocastBytes = 0;
  // While the optimizer works, when activations are gone: gradients in f32, made of shorter ones,
  // or what kernels for many tensors at once (foreach) hold of theirs.
  double stepGradientBytes = 0;
  Bytes stepGradientsAtOnce;  // at most, where parameters are shared; 0: all
  // Per weight of a layer in fp8: its forms for products forward and backward, kept through the
  // step beside the parameters, unless those that ranks of a sharded optimizer gather are such
  // forms themselves.
  double f8CopyBytes = 0;
  bool gathersF8 = false;
  double optimizerTraffic = 30;  // bytes that a step moves per parameter: scaling, norm, update
  double lossBytes = 50;         // that the loss moves per logit, forward and backward
  double parameterTraffic = 0;   // bytes that a microbatch moves per sharded parameter, besides
                                 // gathering: copies and casts. 0: what is gathered are the
                                 // parameters themselves (ZeRO), not copies beside them (FSDP)

  // Kept per logit while the loss is computed: logits, copies in f32, their gradient. 0: one of the
  // compute dtype and two of f32.
  double logitBytes = 0;
  double eagerLogitBytes = 0;  // where layers are compiled and the loss is not; 0: no such choice
  // Of single operators: gated products keep both factors, each query head its keys and values.
  bool eagerLayers = false;
  bool eagerNorms = false;  // RMSNorms as well: they keep their input in f32
  // Of ranks that share tensors along the sequence: products keep the whole operand that was
  // gathered for them (DTensor), not a rank's part, to be gathered again (Megatron).
  bool keepsGatheredInputs = false;
  // Of ranks that share parameters: products keep the gathered weight to their backward, for which
  // it is gathered once more, unless their layer is recomputed in full.
  bool keepsGatheredWeights = false;
  // Layers whose activations the allocator holds beside those that are kept: temporaries of
  // programs that nothing compiled.
  double workingLayers = 0;
  // Under a pipeline, parameters that are shared are gathered once per step and stay, and gradients
  // add up whole until the last microbatch: FSDP2 in PyTorch's pipeline stages.
  bool pipelineKeepsWhole = false;
  // Of split backwards: a rank steps and goes on without waiting for the others' gradient norms,
  // and repeats a step that should have been clipped (post-validation, Qi et al. 2024, section 4).
  bool postValidation = false;
  ReplicaReduction replicaReduction = ReplicaReduction::kPerStep;
  bool keepsNarrow = false;  // inputs of products in fp8 are kept in fp8, not in the compute dtype
  // Of one port of a node that gathering of sharded parameters reaches between nodes, if it leaves
  // the others idle (ClusterSpec::portsPerHost). 0: it uses them all.
  double shardedPortEfficiency = 0;

  // Communication that runs beside computation still slows it down (shared memory bandwidth and
  // multiprocessors, waits): the share of its time that is felt even if all of it is hidden. 1: the
  // software does not overlap it.
  double gradientExposed = 1;        // reduction of gradients, beside the backward
  double gatherExposed = 1;          // gathering of parameters, beside forward and backward
  double tensorParallelExposed = 1;  // collectives within a layer, beside its products
  double transferExposed = 1;        // transfers between stages
  bool hidesBetweenChunks = false;   // transfers with virtual stages alone; without, all is felt
  // Whether each collective of a layer that runs beside products has a buffer of its own, on ranks
  // that share tensors along the sequence: six gathers of the products' operands, four reductions.
  bool keepsLayerBuffers = false;
  // Whether the loader makes an attention mask for every microbatch, a byte for each pair of
  // positions of a sequence, on the first and the last stage; ranks of cp keep a part of it.
  bool loaderMasks = false;

  // Of a program that waits for the device now and then, so that the CPU cannot run ahead for long,
  // a pass takes (device^x + host^x)^(1/x); 0: the longer of both.
  double hostExponent = 0;
  // Of the CPU's time, what is felt though the device has work: the program waits for it, and it
  // stands idle until the next kernels are launched.
  double hostExposed = 0;
  double hostGrowth = 0;  // of the CPU's time, per doubling of tp: collectives wait for the slowest
  Seconds transferSync;   // that the device idles at an exchange between stages
  // Products of logits over those of other layers where the vocabulary is not divided.
  double wholeHeadEfficiency = 1;
  Seconds hostLaunch;              // of the CPU, per kernel: what bounds small kernels
  double hostBackward = 1;         // the same of a backward kernel, relative to a forward one
  Seconds hostMicrobatch;          // of the CPU, once per microbatch and stage
  Seconds hostStep;                // of the CPU, once per step
  double slowdownPerDoubling = 0;  // share of the step, per doubling of the nodes

  // How far nine of ten measured steps are from the estimate at most, as shares of it
  // (cost_models/interval.h). Both 0: not known.
  double fasterRuns = 0, slowerRuns = 0;
  // The same of runs of others, on their clusters, to which nothing was fitted. Both 0: too few
  // were compared.
  double fasterElsewhere = 0, slowerElsewhere = 0;
  // The GPUs of all these runs, by the first words of their names ("H100", "RTX-3090"); empty: not
  // known.
  std::vector<std::string> comparedOn;
  // Whether `device`, by its name in a file of ours or the driver's, is one, or nobody knows.
  bool isComparedOn(std::string_view device) const;

  // Of a GPU, what the allocator does not count.
  Bytes reserve;             // context, libraries
  Bytes ncclConnection;      // and for each connection to a peer (program::ncclConnections)
  double fragmentation = 0;  // of the allocated bytes
  // What memory that is predicted may lack, as a share of a GPU's.
  double memoryDoubt = kUsualMemoryDoubt;
  bool operator==(const StackDescription&) const = default;
};

}  // namespace trireme::spec
