// Flags of Megatron-LM's command lines that end in a refusal: of the past, of other programs, of
// models that nothing here says, and together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/import/import.h"
#include "tests/support/small_plan.h"

namespace trireme::codegen {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// small::gpt(4) with two replicas of tp 2 and pp 2.
const std::string kSmallRun =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
    "--num-attention-heads 4 --seq-length 32 --max-position-embeddings 128 --micro-batch-size 1 "
    "--global-batch-size 32 --tensor-model-parallel-size 2 ";
const std::string kTwoStages = "--pipeline-model-parallel-size 2 ";

Result<Imported> readRun(const std::string& flags) {
  return importPlan(Framework::kMegatron, kSmallRun + flags, "run.sh", small::gpt(4), {});
}
std::string refusalOfFlags(const std::string& flags) {
  const Result<Imported> imported = readRun(flags);
  return imported.has_value() ? "read" : imported.error().message();
}

TEST(MegatronRefusals, NameWhatTodaysMegatronHasInstead) {
  EXPECT_EQ(refusalOfFlags(kTwoStages), "read");
  EXPECT_EQ(refusalOfFlags("--batch-size 8"),
            "run.sh:1: --batch-size is not taken by today's Megatron-LM: give --micro-batch-size");
  EXPECT_THAT(refusalOfFlags("--model-parallel-size 8"),
              HasSubstr("give --tensor-model-parallel-size"));
  EXPECT_THAT(refusalOfFlags("--checkpoint-activations --fp16"),
              HasSubstr("--checkpoint-activations is not taken by today's Megatron-LM: give "
                        "--recompute-activations, or"));
  EXPECT_THAT(refusalOfFlags("--activations-checkpoint-method uniform"),
              HasSubstr("give --recompute-granularity full and --recompute-method"));
  EXPECT_THAT(refusalOfFlags("--bf16 --fp8-hybrid"), HasSubstr("give --fp8-format hybrid"));
  EXPECT_THAT(refusalOfFlags("--virtual-pipeline-model-parallel-size 2"),
              HasSubstr("or --num-virtual-stages-per-pipeline-rank"));
}

// Though they have flags that Megatron-LM has not, either.
TEST(MegatronRefusals, OfMegatronDeepspeedNameItsStack) {
  for (const char* flags : {"--checkpoint-activations --deepspeed --deepspeed_config ds.json",
                            "--zero-stage 1", "--ds-sequence-parallel-size 4"})
    EXPECT_THAT(refusalOfFlags(flags),
                HasSubstr("is a flag of Megatron-DeepSpeed, whose scripts are not read: --stack "
                          "megatron-deepspeed prices plans of trireme"))
        << flags;
}

TEST(MegatronRefusals, OfModelsThatNothingHereSays) {
  for (const char* flags : {"--is-hybrid-model",
                            "--hybrid-override-pattern M-M*",
                            "--attention-chunk-size 8192",
                            "--heterogeneous-layers-config-path a.json",
                            "--experimental-attention-variant gated_delta",
                            "--chunk-attention",
                            "--fine-grained-activation-offloading",
                            "--offload-optimizer-states",
                            "--linear-attention-freq 4",
                            "--linear-attention-type gated_delta_net",
                            "--attention-output-gate",
                            "--no-rope-freq 4",
                            "--enable-hyper-connections",
                            "--retro-add-retriever",
                            "--hybrid-attention-ratio 0.1",
                            "--hybrid-mlp-ratio 0.5",
                            "--decoder-num-layers 4",
                            "--pipeline-model-parallel-split-rank 1",
                            "--encoder-pipeline-model-parallel-size 1",
                            "--encoder-tensor-model-parallel-size 2",
                            "--standalone-embedding-stage",
                            "--kitchen-recipe-number 1",
                            "--kitchen-config-file k.yaml",
                            "--te-precision-config-file te.yaml",
                            "--perform-rl-step"})
    EXPECT_THAT(refusalOfFlags(flags), HasSubstr("cannot be priced: no model or plan here says it"))
        << flags;
  EXPECT_THAT(refusalOfFlags("--yaml-cfg gpt.yaml"),
              HasSubstr("--yaml-cfg puts its file in the place of all flags"));
  EXPECT_THAT(refusalOfFlags("--expert-model-parallel-size 2"),
              HasSubstr("--expert-model-parallel-size is 2, but the model has no experts"));
  EXPECT_EQ(refusalOfFlags("--expert-model-parallel-size 1"), "read");
  const std::string specs = "--spec megatron.core.models.gpt.gpt_layer_specs ";
  EXPECT_THAT(refusalOfFlags(specs + "get_gpt_mtp_block_spec"),
              HasSubstr("': other layers cannot be priced; nearest: megatron.core.models.gpt."
                        "gpt_layer_specs get_gpt_layer_with_transformer_engine_spec"));
  EXPECT_EQ(refusalOfFlags(specs + "get_gpt_layer_with_transformer_engine_spec"), "read");
}

TEST(MegatronRefusals, OfOtherModelsSayWhatTheFlagDoes) {
  EXPECT_EQ(
      refusalOfFlags("--linear-attention-freq 4"),
      "run.sh:1: --linear-attention-freq puts linear attention into some of the layers, which "
      "cannot be priced: no model or plan here says it");
  EXPECT_THAT(refusalOfFlags("--attention-output-gate"),
              HasSubstr("--attention-output-gate puts a gate behind attention"));
  for (const char* type : {"learnable", "off-by-one"})
    EXPECT_THAT(refusalOfFlags(std::string("--softmax-type ") + type),
                HasSubstr(std::string("--softmax-type is '") + type +
                          "', which cannot be priced; nearest: vanilla"));
  EXPECT_EQ(refusalOfFlags("--softmax-type vanilla"), "read");
  EXPECT_THAT(refusalOfFlags("--retro-project-dir retro"),
              HasSubstr("--retro-project-dir takes batch, sequence and data from a file"));
}

// Of GPT models the encoder is the decoder: Megatron takes either name, not both.
TEST(MegatronRefusals, OfEncodersNameTheFlagOfGptModels) {
  EXPECT_THAT(
      refusalOfFlags("--encoder-num-layers 4"),
      HasSubstr("--encoder-num-layers is refused by Megatron beside --num-layers: give that "
                "alone"));
  EXPECT_THAT(refusalOfFlags("--encoder-seq-length 32"), HasSubstr("beside --seq-length"));
  const auto alone =
      importPlan(Framework::kMegatron,
                 "torchrun --nproc-per-node 8 pretrain_gpt.py --encoder-num-layers 4 "
                 "--micro-batch-size 1",
                 "run.sh", small::gpt(4), {});
  ASSERT_FALSE(alone.has_value());
  EXPECT_THAT(alone.error().message(),
              HasSubstr("--encoder-num-layers stands for --num-layers: give that"));
  EXPECT_EQ(refusalOfFlags("--encoder-pipeline-model-parallel-size 0"), "read");
}

// The position is not added where it is rotary; learned ones Megatron does not leave out.
TEST(MegatronRefusals, OfPositionsLeftOut) {
  EXPECT_THAT(refusalOfFlags("--no-position-embedding"),
              HasSubstr("--no-position-embedding is refused by Megatron without rotary positions"));
  EXPECT_THAT(refusalOfFlags("--no-position-embedding --position-embedding-type rope"),
              HasSubstr("--position-embedding-type is rope, but the model has learned_absolute"));
}

TEST(MegatronNotes, OfOffloadingThatIsNotOn) {
  const Result<Imported> imported = readRun("--use-torch-optimizer-for-cpu-offload");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_THAT(imported->notes, Contains("--use-torch-optimizer-for-cpu-offload: does nothing "
                                        "without --optimizer-cpu-offload, which is not given"));
  EXPECT_THAT(imported->unpriced, Not(Contains("--use-torch-optimizer-for-cpu-offload")));
}

// Its second version sets the flag of the first.
TEST(MegatronRefusals, OfMegatronFsdpIncludeOtherTypes) {
  const std::string strategy = "--bf16 --data-parallel-sharding-strategy optim_grads_params ";
  for (const char* version : {"--use-megatron-fsdp ", "--use-megatron-fsdp-v2 "}) {
    const std::string fsdp = strategy + version;
    const Result<Imported> imported = readRun(fsdp);
    ASSERT_TRUE(imported.has_value()) << imported.error().message();
    EXPECT_EQ(imported->plan.stateSharding, plan::StateSharding::kParameters);
    EXPECT_THAT(refusalOfFlags(fsdp + "--outer-dp-sharding-strategy optim"),
                HasSubstr("--outer-dp-sharding-strategy is 'optim': replicas of shards share the "
                          "optimizer's state, which cannot be priced; nearest: no_shard"));
    EXPECT_THAT(refusalOfFlags(fsdp + "--megatron-fsdp-main-grads-dtype bf16"),
                HasSubstr("--megatron-fsdp-main-grads-dtype is 'bf16': gradients add up in another "
                          "type, which cannot be priced; nearest: fp32"));
    EXPECT_EQ(refusalOfFlags(fsdp + "--outer-dp-sharding-strategy no_shard "
                                    "--megatron-fsdp-main-grads-dtype fp32"),
              "read");
  }
  EXPECT_EQ(refusalOfFlags("--bf16 --megatron-fsdp-main-grads-dtype bf16"), "read");
}

TEST(MegatronRefusals, OfFlagsThatMegatronRefusesTogether) {
  EXPECT_THAT(refusalOfFlags("--tp-comm-overlap"),
              HasSubstr("--tp-comm-overlap is refused by Megatron without sequence parallelism"));
  EXPECT_EQ(refusalOfFlags("--tp-comm-overlap --sequence-parallel"), "read");
  const std::string chunks = kTwoStages + "--num-layers-per-virtual-pipeline-stage 1 ";
  EXPECT_EQ(refusalOfFlags(chunks), "read");
  EXPECT_THAT(refusalOfFlags(chunks + "--no-overlap-p2p-communication"),
              HasSubstr("--no-overlap-p2p-communication is refused by Megatron with virtual stages "
                        "and pp 2; nearest: pp 3"));
  EXPECT_EQ(refusalOfFlags(kTwoStages + "--no-overlap-p2p-communication"), "read");
  const std::string group = "--microbatch-group-size-per-virtual-pipeline-stage ";
  EXPECT_EQ(refusalOfFlags(chunks + group + "2"), "read");
  EXPECT_EQ(refusalOfFlags(kTwoStages + group + "4"), "read");  // nobody reads it
  EXPECT_THAT(refusalOfFlags(chunks + group + "4"),
              AllOf(HasSubstr(group + "is 4: other groups"), HasSubstr("nearest: 2")));
  const std::string gathers = "--use-distributed-optimizer --overlap-param-gather ";
  EXPECT_EQ(refusalOfFlags(gathers + "--overlap-grad-reduce"), "read");
  for (const std::string& flags :
       {gathers, std::string("--overlap-param-gather --overlap-grad-reduce")})
    EXPECT_THAT(refusalOfFlags(flags), HasSubstr("--overlap-param-gather is refused by Megatron"));
  EXPECT_THAT(refusalOfFlags("--overlap-param-gather-with-optimizer-step"),
              HasSubstr("is refused by Megatron without virtual stages"));
  EXPECT_EQ(refusalOfFlags("--recompute-activations"), "read");
  EXPECT_THAT(refusalOfFlags("--recompute-activations --recompute-granularity full "
                             "--recompute-method uniform --recompute-num-layers 1"),
              HasSubstr("--recompute-activations goes not with --recompute-granularity full"));
  EXPECT_THAT(refusalOfFlags("--recompute-activations --recompute-method uniform"),
              HasSubstr("--recompute-method goes not with --recompute-activations"));
  EXPECT_THAT(refusalOfFlags("--recompute-granularity selective --recompute-method uniform"),
              HasSubstr("--recompute-method goes not with --recompute-granularity selective"));
}

// Otherwise --overlap-param-gather alone would be refused.
TEST(MegatronOverlap, GathersOnlyWhereStateIsShared) {
  EXPECT_EQ(readRun("--bf16")->missing.gathers,
            "--overlap-param-gather (beside --use-distributed-optimizer)");
  EXPECT_EQ(readRun("--bf16 --use-distributed-optimizer")->missing.gathers,
            "--overlap-param-gather");
}

// And refuses gradients that do not.
TEST(MegatronOverlap, ItsFsdpOverlapsByItself) {
  const auto missing = [](const std::string& strategy) {
    const auto imported =
        readRun("--bf16 --use-megatron-fsdp --data-parallel-sharding-strategy " + strategy);
    return imported.has_value() ? imported->missing.gradients + imported->missing.gathers
                                : imported.error().message();
  };
  EXPECT_EQ(missing("optim_grads_params"), "");
  EXPECT_EQ(missing("optim"), "--overlap-grad-reduce--overlap-param-gather");
  EXPECT_THAT(missing("optim_grads"),
              HasSubstr("optim_grads is refused by Megatron's FSDP without --overlap-grad-reduce"));
  EXPECT_EQ(missing("optim_grads --overlap-grad-reduce"), "--overlap-param-gather");
}

}  // namespace
}  // namespace trireme::codegen
