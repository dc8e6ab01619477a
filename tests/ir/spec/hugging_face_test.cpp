#include "ir/spec/hugging_face.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* kGpt2 =
    "{\n"
    "  \"model_type\": \"gpt2\",\n"
    "  \"n_embd\": 8,\n"
    "  \"n_head\": 2,\n"
    "  \"n_layer\": 3,\n"
    "  \"n_positions\": 16,\n"
    "  \"vocab_size\": 50\n"
    "}\n";

// The options that llama, mistral and qwen2 share; the first line ends in the options under test.
std::string llamaLike(const std::string& type, const std::string& options = "") {
  return "{\"model_type\": \"" + type + "\"," + options +
         "\n"
         "  \"hidden_size\": 8,\n"
         "  \"intermediate_size\": 24,\n"
         "  \"max_position_embeddings\": 16,\n"
         "  \"num_attention_heads\": 4,\n"
         "  \"num_hidden_layers\": 3,\n"
         "  \"vocab_size\": 50\n"
         "}\n";
}

Result<ModelSpec> parseConfig(const std::string& text) { return parseModel(text, "config.json"); }
std::string gpt2With(const std::string& option) {
  return messageOf(parseConfig(replaced(kGpt2, "{\n", "{\n  " + option + ",\n")));
}
std::string llamaWith(const std::string& options) {
  return messageOf(parseConfig(llamaLike("llama", options)));
}

TEST(HuggingFaceExamples, EqualOurOwnDescriptions) {
  for (const auto& [file, ours] :
       {std::pair("gpt2", "gpt2-124m"), std::pair("llama2-7b", "llama2-7b"),
        std::pair("llama3.1-8b", "llama3.1-8b"), std::pair("mistral-7b", "mistral-7b"),
        std::pair("qwen2-7b", "qwen2-7b")}) {
    Result<ModelSpec> imported = loadModel(examplePath(std::string("models/hf/") + file + ".json"));
    ASSERT_TRUE(imported.has_value()) << messageOf(imported);
    const Result<ModelSpec> own = loadModel(examplePath(std::string("models/") + ours + ".yaml"));
    ASSERT_TRUE(own.has_value()) << messageOf(own);
    imported->name = own->name;
    EXPECT_EQ(printModel(*imported), printModel(*own));
    EXPECT_EQ(*imported, *own);
  }
}

TEST(HuggingFaceGpt2, AbsentOptionsHaveTheLibrarysDefaults) {
  const ModelSpec m = parseConfig(kGpt2).value();
  EXPECT_EQ(m.name, "gpt2");
  EXPECT_EQ(m.ffnSize, 32);
  EXPECT_EQ(m.activation, ActivationKind::kGeluTanh);
  EXPECT_TRUE(m.tiedEmbeddings && m.qkvBias && m.linearBias);
  EXPECT_EQ(m.normEpsilon, 1e-5);
  EXPECT_EQ(m.initStd, 0.02);
}

TEST(HuggingFaceGpt2, WrittenOptionsAreTaken) {
  const ModelSpec m =
      parseConfig(
          replaced(
              kGpt2, "{\n",
              "{\"n_inner\": 20, \"tie_word_embeddings\": false, \"layer_norm_epsilon\": 1e-6, "
              "\"initializer_range\": 0.01, \"activation_function\": \"gelu_pytorch_tanh\", "
              "\"_name_or_path\": \"mine\",\n"))
          .value();
  EXPECT_EQ(m.ffnSize, 20);
  EXPECT_FALSE(m.tiedEmbeddings);
  EXPECT_EQ(m.normEpsilon, 1e-6);
  EXPECT_EQ(m.initStd, 0.01);
  EXPECT_EQ(m.name, "mine");
}

TEST(HuggingFaceGpt2, ModelsWithoutANameHaveThatOfTheirPlace) {
  const auto nameAt = [](const std::string& file) { return parseModel(kGpt2, file)->name; };
  EXPECT_EQ(nameAt("models/gpt2-large/config.json"), "gpt2-large");
  EXPECT_EQ(nameAt("models/gpt2-large.json"), "gpt2-large");
  EXPECT_EQ(nameAt("hub/models--openai-community--gpt2-xl/snapshots/15ea56d/config.json"),
            "gpt2-xl");
  for (const char* file : {"config.json", "./config.json", "../config.json", "\xff/config.json"})
    EXPECT_EQ(nameAt(file), "gpt2") << file;
}

TEST(HuggingFaceGpt2, NullMeansTheDefault) {
  EXPECT_EQ(
      parseConfig(replaced(kGpt2, "{\n", "{\"n_inner\": null, \"quantization_config\": null,\n"))
          ->ffnSize,
      32);
}

TEST(HuggingFaceGpt2, RefusesByNameWhatChangesTheComputation) {
  EXPECT_EQ(gpt2With("\"activation_function\": \"gelu\""),
            "config.json:2:26: activation_function: 'gelu' is not supported (accepted: gelu_new, "
            "gelu_pytorch_tanh): only the tanh form of GELU is known");
  EXPECT_THAT(gpt2With("\"activation_function\": \"relu\""), HasSubstr("'relu' is not supported"));
  EXPECT_THAT(gpt2With("\"scale_attn_weights\": false"),
              HasSubstr("scale_attn_weights: 'false' is not supported (accepted: true)"));
  EXPECT_THAT(gpt2With("\"scale_attn_by_inverse_layer_idx\": true"),
              HasSubstr("scale_attn_by_inverse_layer_idx: 'true' is not supported"));
  EXPECT_THAT(gpt2With("\"reorder_and_upcast_attn\": true"),
              HasSubstr("reorder_and_upcast_attn: 'true' is not supported"));
  EXPECT_THAT(gpt2With("\"add_cross_attention\": true"),
              HasSubstr("add_cross_attention: 'true' is not"));
  EXPECT_THAT(gpt2With("\"quantization_config\": {\"bits\": 4}"),
              HasSubstr("quantization_config: a map is not supported (accepted: null)"));
  EXPECT_THAT(gpt2With("\"pruned_heads\": {\"0\": [1]}"),
              HasSubstr("pruned_heads: a map is not supported"));
  EXPECT_EQ(gpt2With("\"pruned_heads\": {}"), "(no error)");
  EXPECT_EQ(gpt2With("\"scale_attn_weights\": true"), "(no error)");
}

TEST(HuggingFaceGpt2, ContextMustAgreeWithPositions) {
  EXPECT_EQ(gpt2With("\"n_ctx\": 16"), "(no error)");
  EXPECT_EQ(gpt2With("\"n_ctx\": 8"), "config.json:2:12: n_ctx: differs from n_positions (16)");
}

TEST(HuggingFaceGpt2, DropoutIsATrainingSetting) {
  EXPECT_EQ(gpt2With("\"attn_pdrop\": 0.5, \"embd_pdrop\": 0.5, \"resid_pdrop\": 0.5"),
            "(no error)");
}

TEST(HuggingFace, DropoutIsReported) {
  const auto dropoutOf = [](const std::string& text) {
    return importDropout(parseDocument(text, "config.json").value(), "config.json");
  };
  const auto found = dropoutOf(
      R"({"model_type": "gpt2", "attn_pdrop": 0.25, "embd_pdrop": null, "resid_pdrop": 0.5})");
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].option, "attn_pdrop");
  EXPECT_EQ((*found)[0].key, "attention_dropout");
  EXPECT_EQ((*found)[0].probability, 0.25);
  EXPECT_EQ((*found)[1].key, "residual_dropout");
  EXPECT_THAT(messageOf(dropoutOf(R"({"model_type": "gpt2", "attn_pdrop": "some"})")),
              HasSubstr("config.json:1:38: attn_pdrop: expected a number"));
  EXPECT_TRUE(dropoutOf(R"({"attention_dropout": 0.1})")->empty());  // not of Hugging Face
}

TEST(HuggingFace, UnknownOptionIsRefused) {
  EXPECT_EQ(gpt2With("\"use_flux_capacitor\": 0"),
            "config.json:2:3: unknown option 'use_flux_capacitor': cannot tell whether it changes "
            "the model; if it does not, remove it");
  EXPECT_THAT(gpt2With("\"auto_map\": {\"AutoModel\": \"m.M\"}"),
              HasSubstr("is not supported (accepted: {}): code of its own may change the model"));
  EXPECT_THAT(gpt2With("\"n_special\": 3"), HasSubstr("n_special: '3' is not supported"));
  // An option of another family is unknown to this one.
  EXPECT_THAT(gpt2With("\"hidden_size\": 8"), HasSubstr("unknown option 'hidden_size'"));
}

// Whatever the model_type: deleting the key would make another model of it.
TEST(HuggingFace, MixturesOfExpertsAreRefused) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    EXPECT_THAT(gpt2With(fmt::format("\"{}\": 8", key)),
                HasSubstr(fmt::format("{}: is 8: mixtures of experts are not planned", key)));
    EXPECT_EQ(gpt2With(fmt::format("\"{}\": 1", key)), "(no error)");
  }
}

TEST(HuggingFace, UnknownModelTypeIsRefused) {
  EXPECT_EQ(messageOf(parseConfig("{\"model_type\": \"bert\", \"hidden_size\": 8}")),
            "config.json:1:16: model_type: 'bert' is not supported; supported: gpt2, llama, "
            "mistral, qwen2; another dense model of Llama's shape can be written as a model file "
            "(family: llama, and head_size where it is not hidden / heads)");
  EXPECT_THAT(messageOf(parseConfig("{\"model_type\": \"qwen3\"}")),
              HasSubstr("'qwen3' is not supported"));
  EXPECT_THAT(messageOf(parseConfig("{\"model_type\": null}")), HasSubstr("model_type: missing"));
  EXPECT_THAT(
      messageOf(parseConfig("{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 8}")),
      HasSubstr("model_type"));
}

TEST(HuggingFace, ArchitectureIsTheCausalLanguageModelOfTheType) {
  const auto with = [](const std::string& type, const std::string& architectures) {
    const std::string heads =
        type == "mistral" || type == "qwen2" ? "\"num_key_value_heads\": 2," : "";
    return messageOf(
        parseConfig(llamaLike(type, "\"architectures\": " + architectures + "," + heads)));
  };
  for (const char* accepted :
       {"null", "[]", "[\"LlamaForCausalLM\"]", "[\"LLaMAForCausalLM\"]", "[\"LlamaModel\"]",
        "[\"FSDPLlamaForCausalLM\"]", "[\"Other\", \"LlamaForCausalLM\"]"})
    EXPECT_EQ(with("llama", accepted), "(no error)") << accepted;
  for (const char* accepted : {"[\"MistralForCausalLM\"]", "[\"MistralModel\"]"})
    EXPECT_EQ(with("mistral", accepted), "(no error)") << accepted;
  for (const char* accepted : {"[\"Qwen2ForCausalLM\"]", "[\"Qwen2Model\"]"})
    EXPECT_EQ(with("qwen2", accepted), "(no error)") << accepted;
  for (const char* accepted : {"[\"GPT2LMHeadModel\"]", "[\"GPT2Model\"]"})
    EXPECT_EQ(gpt2With(std::string("\"architectures\": ") + accepted), "(no error)") << accepted;

  EXPECT_EQ(
      gpt2With("\"architectures\": [\"GPT2DoubleHeadsModel\"]"),
      "config.json:2:20: architectures: 'GPT2DoubleHeadsModel' is not supported (accepted: "
      "GPT2LMHeadModel, GPT2Model): of model_type gpt2 only the causal language model is known");
  EXPECT_THAT(with("llama", "[\"LlamaForSequenceClassification\"]"),
              HasSubstr("architectures: 'LlamaForSequenceClassification' is not supported "
                        "(accepted: LlamaForCausalLM, LlamaModel, LLaMAForCausalLM)"));
  EXPECT_THAT(with("qwen2", "[\"Qwen3ForCausalLM\"]"),
              HasSubstr("'Qwen3ForCausalLM' is not supported (accepted: Qwen2ForCausalLM, "));
  EXPECT_THAT(with("mistral", "[\"LlamaForCausalLM\"]"),
              HasSubstr("'LlamaForCausalLM' is not supported (accepted: MistralForCausalLM, "));
  EXPECT_THAT(with("llama", "[null]"), HasSubstr("nothing is not supported"));
  EXPECT_THAT(with("llama", "[\"\"]"), HasSubstr("'' is not supported"));
  EXPECT_THAT(with("llama", "\"LlamaForCausalLM\""),
              HasSubstr("architectures: expected a list of names, got 'LlamaForCausalLM'"));
}

// Its options would only hide it.
TEST(HuggingFace, ArchitectureIsSaidBeforeUnknownOptions) {
  EXPECT_THAT(
      llamaWith("\"score_bias\": true, \"architectures\": [\"LlamaForTokenClassification\"],"),
      HasSubstr("'LlamaForTokenClassification' is not supported"));
}

TEST(HuggingFace, MissingSizeIsNamed) {
  EXPECT_EQ(messageOf(parseConfig(replaced(kGpt2, "  \"n_layer\": 3,\n", ""))),
            "config.json:1:1: n_layer: missing");
}

TEST(HuggingFace, BadValueIsReportedUnderItsOwnKey) {
  EXPECT_EQ(messageOf(parseConfig(replaced(kGpt2, "\"n_layer\": 3", "\"n_layer\": 0"))),
            "config.json:5:14: n_layer: must be 1 to 1073741824, got 0");
  EXPECT_EQ(messageOf(parseConfig(replaced(kGpt2, "\"n_head\": 2", "\"n_head\": 3"))),
            "config.json:4:13: n_head: 3 does not divide n_embd (8)");
  EXPECT_THAT(llamaWith("\"num_key_value_heads\": 3,"),
              HasSubstr("num_key_value_heads: must divide heads (4), got 3"));
  EXPECT_THAT(gpt2With("\"tie_word_embeddings\": \"yes\""),
              HasSubstr("tie_word_embeddings: expected true or false, got 'yes'"));
}

TEST(HuggingFaceLlama, AbsentOptionsHaveTheLibrarysDefaults) {
  const ModelSpec m = parseConfig(llamaLike("llama")).value();
  EXPECT_EQ(m.family, ModelFamily::kLlama);
  EXPECT_EQ(m.numKvHeads, 4);
  EXPECT_EQ(m.headSize, 2);
  EXPECT_EQ(m.ropeTheta, 10000);
  EXPECT_EQ(m.normEpsilon, 1e-6);
  EXPECT_EQ(m.norm, NormKind::kRmsNorm);
  EXPECT_EQ(m.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(m.position, PositionKind::kRotary);
  EXPECT_FALSE(m.tiedEmbeddings || m.qkvBias || m.linearBias);
}

TEST(HuggingFaceLlama, HeadDimOverridesTheQuotient) {
  EXPECT_EQ(parseConfig(llamaLike("llama", "\"head_dim\": 6,"))->headSize, 6);
  EXPECT_EQ(parseConfig(llamaLike("llama", "\"head_dim\": null,"))->headSize, 2);
  EXPECT_THAT(llamaWith("\"head_dim\": 3,"),
              HasSubstr("head_dim: must be even with rotary positions"));
}

TEST(HuggingFaceLlama, RefusesByNameWhatChangesTheComputation) {
  for (const char* type : {"dynamic", "yarn", "longrope", "su", "none"})
    EXPECT_THAT(llamaWith(R"("rope_scaling": {"rope_type": ")" + std::string(type) +
                          R"(", "factor": 4.0, "beta_fast": 32},)"),
                HasSubstr(std::string("rope_scaling.rope_type: '") + type +
                          "' is not supported (accepted: default, linear, llama3, and dynamic with "
                          "factor 1)"));
  EXPECT_THAT(llamaWith("\"hidden_act\": \"gelu\","),
              HasSubstr("hidden_act: 'gelu' is not supported (accepted: silu)"));
  EXPECT_THAT(llamaWith("\"pretraining_tp\": 2,"),
              HasSubstr("pretraining_tp: '2' is not supported"));
  EXPECT_THAT(llamaWith("\"partial_rotary_factor\": 0.5,"),
              HasSubstr("partial_rotary_factor: '0.5' is not supported"));
  EXPECT_THAT(llamaWith("\"use_mrope\": true,"), HasSubstr("use_mrope: 'true' is not supported"));
  EXPECT_THAT(llamaWith("\"rope_interleaved\": true,"),
              HasSubstr("rope_interleaved: 'true' is not supported"));
  // As published configurations of these families have them.
  EXPECT_EQ(
      llamaWith("\"use_mrope\": false, \"rope_interleaved\": false, \"is_llama_config\": true, "
                "\"max_sequence_length\": 2048, \"unsloth_version\": \"2025.1\", "
                "\"transformers.js_config\": {\"kv_cache_dtype\": {}},"),
      "(no error)");
  EXPECT_EQ(gpt2With("\"n_special\": 0, \"predict_special_tokens\": true, \"output_past\": true, "
                     "\"do_sample\": true, \"torchscript\": false"),
            "(no error)");
  EXPECT_EQ(llamaWith("\"rope_scaling\": null, \"hidden_act\": \"silu\", \"pretraining_tp\": 1, "
                      "\"partial_rotary_factor\": 1.0,"),
            "(no error)");
}

TEST(HuggingFaceLlama, RopeScalingThatDoesNothingIsAccepted) {
  const ModelSpec plain = parseConfig(llamaLike("llama")).value();
  for (const char* scaling :
       {"null", "{}", "{\"type\": \"default\"}", "{\"rope_type\": \"default\"}",
        "{\"type\": \"linear\", \"factor\": 1.0}", "{\"rope_type\": \"dynamic\", \"factor\": 1}"}) {
    const auto model =
        parseConfig(llamaLike("llama", "\"rope_scaling\": " + std::string(scaling) + ","));
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    EXPECT_EQ(*model, plain);
  }
}

const char* const kLlama31 =
    R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
       "original_max_position_embeddings": 8192)";

TEST(HuggingFaceLlama, RopeScalingIsReadUnderEveryName) {
  const RopeScaling linear{.kind = RopeScalingKind::kLinear, .factor = 2};
  const RopeScaling llama31{RopeScalingKind::kLlama3, 8, 1, 4, 8192};
  const auto read = [](const std::string& options) {
    const auto model = parseConfig(llamaLike("llama", options));
    EXPECT_TRUE(model.has_value()) << messageOf(model);
    return model->ropeScaling;
  };
  EXPECT_EQ(read(R"("rope_scaling": {"type": "linear", "factor": 2.0},)"), linear);
  EXPECT_EQ(read(R"("rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2},)"),
            linear);
  EXPECT_EQ(read(R"("rope_scaling": {"rope_type": "llama3", )" + std::string(kLlama31) + "},"),
            llama31);
  const std::string newer = R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", )" +
                            std::string(kLlama31) + "},";
  EXPECT_EQ(read(newer), llama31);
  EXPECT_EQ(parseConfig(llamaLike("llama", newer))->ropeTheta, 5e5);
  EXPECT_EQ(read(R"("rope_scaling": null, )" + newer), llama31);
  EXPECT_EQ(read(R"("rope_scaling": {"type": "llama3", )" + std::string(kLlama31) + "}, " + newer),
            llama31);
}

TEST(HuggingFaceLlama, RopeScalingThatIsIncompleteOrWrongIsRefused) {
  const auto scaled = [](const std::string& items) {
    return llamaWith("\"rope_scaling\": {" + items + "},");
  };
  EXPECT_EQ(scaled(R"("type": "linear")"), "config.json:1:40: rope_scaling.factor: missing");
  EXPECT_EQ(scaled(R"("type": "linear", "factor": null)"),
            "config.json:1:40: rope_scaling.factor: missing");
  EXPECT_EQ(scaled(R"("type": "linear", "factor": 0.5)"),
            "config.json:1:69: rope_scaling.factor: must be at least 1, got 0.5");
  EXPECT_THAT(scaled(R"("rope_type": "llama3", "factor": 1.0)"),
              HasSubstr("rope_scaling.low_freq_factor, rope_scaling.high_freq_factor, "
                        "rope_scaling.original_max_position_embeddings: missing"));
  EXPECT_THAT(scaled(R"("type": "llama3", "factor": 8, "low_freq_factor": 4,
                        "high_freq_factor": 1, "original_max_position_embeddings": 8192)"),
              HasSubstr("config.json:2:45: rope_scaling.high_freq_factor: must be above "
                        "low_freq_factor (4), got 1"));
  EXPECT_EQ(scaled(R"("type": "default", "factor": 1.0)"), "(no error)");
  EXPECT_THAT(scaled(R"("type": "default", "factor": 8.0)"),
              HasSubstr("rope_scaling.factor: has no effect with this type: remove it"));
  EXPECT_THAT(scaled(R"("type": "linear", "rope_type": "llama3", "factor": 8.0)"),
              HasSubstr("rope_scaling.rope_type: 'llama3', but type is 'linear'"));
  EXPECT_THAT(scaled(R"("type": "linear", "factor": 2, "beta_fast": 1)"),
              HasSubstr("rope_scaling: unknown option 'beta_fast'"));
  EXPECT_THAT(llamaWith(R"("rope_scaling": {"type": "linear", "factor": 2},
                           "rope_parameters": {"rope_type": "linear", "factor": 4},)"),
              HasSubstr("rope_parameters: the scaling is {type: linear, factor: 4}, but that of "
                        "rope_scaling is {type: linear, factor: 2}"));
  EXPECT_THAT(llamaWith(R"("rope_scaling": {"type": "linear", "factor": 2},
                           "rope_parameters": {"rope_type": "default"},)"),
              HasSubstr("rope_parameters: the scaling is none, but that of rope_scaling is {type: "
                        "linear, factor: 2}"));
}

// Removing the number, which a default type asks for, would train another model.
TEST(HuggingFaceLlama, RopeScalingWithoutATypeIsSaidToMissIt) {
  const auto scaled = [](const std::string& items) {
    return llamaWith("\"rope_scaling\": {" + items + "},");
  };
  EXPECT_THAT(scaled(kLlama31),
              HasSubstr("rope_scaling.original_max_position_embeddings: has no effect without "
                        "rope_type, which is missing (such a number is of llama3)"));
  EXPECT_EQ(scaled(R"("factor": 8.0)"),
            "config.json:1:51: rope_scaling.factor: has no effect without rope_type, which is "
            "missing (such a number is of linear or llama3)");
  EXPECT_EQ(scaled(R"("factor": 1.0)"), "(no error)");
}

// An empty map, or one with the base alone, does not contradict the other.
TEST(HuggingFaceLlama, AMapThatSaysNothingOfScalingLeavesItToTheOther) {
  const RopeScaling linear{.kind = RopeScalingKind::kLinear, .factor = 2};
  for (const char* maps :
       {R"("rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2},)",
        R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {},)",
        R"("rope_scaling": {"type": "linear", "factor": 2},
           "rope_parameters": {"rope_theta": 5e5},)"}) {
    const auto model = parseConfig(llamaLike("llama", maps));
    ASSERT_TRUE(model.has_value()) << messageOf(model);
    EXPECT_EQ(model->ropeScaling, linear);
  }
}

TEST(HuggingFaceLlama, BiasesAreAllOrNone) {
  EXPECT_THAT(
      llamaWith("\"attention_bias\": true,"),
      HasSubstr(
          "attention_bias: true is supported only if attention_bias and mlp_bias are both true"));
  EXPECT_THAT(llamaWith("\"mlp_bias\": true,"), HasSubstr("mlp_bias: true is supported only if"));
  const ModelSpec m =
      parseConfig(llamaLike("llama", "\"attention_bias\": true, \"mlp_bias\": true,")).value();
  EXPECT_TRUE(m.qkvBias && m.linearBias);
}

TEST(HuggingFaceLlama, RopeParametersMapIsRead) {
  EXPECT_EQ(
      parseConfig(
          llamaLike("llama",
                    "\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"default\"},"))
          ->ropeTheta,
      5e5);
  EXPECT_THAT(llamaWith("\"rope_parameters\": {\"rope_type\": \"yarn\"},"),
              HasSubstr("rope_parameters.rope_type: 'yarn' is not supported"));
  EXPECT_THAT(llamaWith("\"rope_parameters\": {\"beta_fast\": 2},"),
              HasSubstr("rope_parameters: unknown option 'beta_fast'"));
  EXPECT_THAT(llamaWith("\"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5},"),
              HasSubstr("differs from rope_theta outside the map"));
}

TEST(HuggingFaceLlama, LayerTypesMustBeFullAttention) {
  const std::string full = "\"full_attention\"";
  EXPECT_EQ(llamaWith("\"layer_types\": [" + full + "," + full + "," + full + "],"), "(no error)");
  EXPECT_EQ(llamaWith("\"layer_types\": [" + full + "," + full + "],"),
            "config.json:1:39: layer_types: has 2 entries, but num_hidden_layers is 3");
  EXPECT_THAT(
      llamaWith("\"layer_types\": [\"full_attention\", \"sliding_attention\"],"),
      HasSubstr("layer_types: 'sliding_attention' is not supported (accepted: full_attention)"));
}

TEST(HuggingFaceMistral, SlidingWindowInUseIsRefused) {
  EXPECT_THAT(
      messageOf(
          parseConfig(llamaLike("mistral", "\"sliding_window\": 12, \"num_key_value_heads\": 2,"))),
      AllOf(HasSubstr(
                "sliding_window: attention within a sliding window of 12 tokens is not supported"),
            HasSubstr("sequences of up to 12 tokens are unaffected")));
  for (const char* window : {"null", "16", "4096"}) {
    const std::string option =
        std::string("\"num_key_value_heads\": 2, \"sliding_window\": ") + window + ",";
    EXPECT_EQ(parseConfig(llamaLike("mistral", option))->numKvHeads, 2) << window;
  }
}

TEST(HuggingFaceMistral, AbsentWindowIsTheLibrarysDefault) {
  const std::string text = llamaLike("mistral", "\"num_key_value_heads\": 2,");
  EXPECT_TRUE(parseConfig(text).has_value());  // 16 positions, below 4096
  EXPECT_THAT(
      messageOf(parseConfig(replaced(text, "embeddings\": 16", "embeddings\": 32768"))),
      HasSubstr(
          "config.json:1:1: sliding_window: attention within a sliding window of 4096 tokens"));
}

TEST(HuggingFaceMistral, AbsentKvHeadsAreTheLibrarysEight) {
  EXPECT_THAT(messageOf(parseConfig(llamaLike("mistral"))),
              HasSubstr("num_key_value_heads: must divide heads (4), got 8"));
  EXPECT_EQ(parseConfig(llamaLike("mistral", "\"num_key_value_heads\": null,"))->numKvHeads, 4);
}

TEST(HuggingFaceQwen2, HasQkvBiasOnly) {
  const ModelSpec m = parseConfig(llamaLike("qwen2", "\"num_key_value_heads\": 2,")).value();
  EXPECT_TRUE(m.qkvBias);
  EXPECT_FALSE(m.linearBias);
  EXPECT_FALSE(m.tiedEmbeddings);
  EXPECT_TRUE(
      parseConfig(llamaLike("qwen2", "\"num_key_value_heads\": 2, \"tie_word_embeddings\": true,"))
          ->tiedEmbeddings);
}

TEST(HuggingFaceQwen2, WindowCountsOnlyIfUsed) {
  const std::string window =
      "\"num_key_value_heads\": 2, \"max_window_layers\": 1, \"sliding_window\": 4, ";
  EXPECT_TRUE(
      parseConfig(llamaLike("qwen2", window + "\"use_sliding_window\": false,")).has_value());
  EXPECT_THAT(messageOf(parseConfig(llamaLike("qwen2", window + "\"use_sliding_window\": true,"))),
              AllOf(HasSubstr("use_sliding_window: attention within a sliding window of 4 tokens"),
                    HasSubstr("sequences of up to 4 tokens are unaffected")));
  // The window is of layers from max_window_layers on: of none.
  std::string ofNone = window + "\"use_sliding_window\": true,";
  const std::string layers = "\"max_window_layers\": 1";
  ofNone.replace(ofNone.find(layers), layers.size(), "\"max_window_layers\": 28");
  EXPECT_TRUE(parseConfig(llamaLike("qwen2", ofNone)).has_value());
  // To llama, the same option is unknown.
  EXPECT_THAT(llamaWith("\"use_sliding_window\": false,"),
              HasSubstr("unknown option 'use_sliding_window'"));
}

}  // namespace
}  // namespace trireme::spec
