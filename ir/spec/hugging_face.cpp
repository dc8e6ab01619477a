#include "ir/spec/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "ir/spec/checks.h"
#include "ir/spec/rope_scaling.h"

namespace trireme::spec {
namespace {

enum class HfFamily : uint8_t { kGpt2, kLlama, kMistral, kQwen2 };

constexpr EnumName<HfFamily> kFamilies[] = {{"gpt2", HfFamily::kGpt2},
                                            {"llama", HfFamily::kLlama},
                                            {"mistral", HfFamily::kMistral},
                                            {"qwen2", HfFamily::kQwen2}};

// The classes of the causal language model, and what is below its head, which embedding models and
// older checkpoints name. LLaMA is what conversions of before the class's release wrote.
struct Architectures {
  HfFamily family;
  std::array<std::string_view, 3> names;  // unused places are empty
};

constexpr Architectures kArchitectures[] = {
    {HfFamily::kGpt2, {"GPT2LMHeadModel", "GPT2Model"}},
    {HfFamily::kLlama, {"LlamaForCausalLM", "LlamaModel", "LLaMAForCausalLM"}},
    {HfFamily::kMistral, {"MistralForCausalLM", "MistralModel"}},
    {HfFamily::kQwen2, {"Qwen2ForCausalLM", "Qwen2Model"}}};

std::vector<std::string_view> architecturesOf(HfFamily family) {
  std::vector<std::string_view> names;
  for (const Architectures& known : kArchitectures)
    for (const std::string_view name : known.names)
      if (known.family == family && !name.empty()) names.push_back(name);
  return names;
}

// The class of a model that FSDP2 has wrapped, as transformers once saved it.
std::string_view withoutFsdp(std::string_view name) {
  if (name.starts_with("FSDP")) name.remove_prefix(4);
  return name;
}

// Cannot change a training step as a function of (weights, tokens): names, tokenizer, generation,
// storage. Dropout rates are training settings: importDropout() reports them.
constexpr std::string_view kHarmless[] = {"torch_dtype",
                                          "dtype",
                                          "transformers_version",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "unk_token_id",
                                          "sep_token_id",
                                          "decoder_start_token_id",
                                          "use_cache",
                                          "embd_pdrop",
                                          "attn_pdrop",
                                          "resid_pdrop",
                                          "attention_dropout",
                                          "hidden_dropout",
                                          "summary_activation",
                                          "summary_first_dropout",
                                          "summary_proj_to_labels",
                                          "summary_type",
                                          "summary_use_proj",
                                          "task_specific_params",
                                          "id2label",
                                          "label2id",
                                          "num_labels",
                                          "problem_type",
                                          "finetuning_task",
                                          "return_dict",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "gradient_checkpointing",
                                          "_attn_implementation",
                                          "_commit_hash",
                                          "_num_labels",
                                          "tokenizer_class",
                                          "prefix",
                                          "max_length",
                                          "max_sequence_length",
                                          "do_sample",
                                          "temperature",
                                          "top_p",
                                          "top_k",
                                          "repetition_penalty",
                                          "output_past",
                                          "predict_special_tokens",
                                          "torchscript",
                                          "is_llama_config",
                                          "transformers.js_config",
                                          "_attn_implementation_autoset",
                                          "_flash_attn_2_enabled",
                                          "unsloth_version",
                                          "unsloth_fixed"};

// An option that may only have the values that leave the model as ModelSpec describes it. null is
// always one.
struct Fixed {
  std::string_view key;
  std::array<std::string_view, 2> accepted;  // unused places are empty
  std::string_view why;
};

constexpr Fixed kFixedForAll[] = {
    {"quantization_config", {}, "quantized weights cannot be trained here"},
    {"add_cross_attention", {"false"}, "there is no encoder to attend to"},
    {"is_encoder_decoder", {"false"}, "only decoder-only models are known"},
    {"tie_encoder_decoder", {"false"}, "only decoder-only models are known"},
    {"chunk_size_feed_forward", {"0"}, "the feed-forward layer is not chunked"},
    {"pruned_heads", {"{}"}, "every layer has all heads"},
    {"auto_map", {"{}"}, "code of its own may change the model"},
    {"partial_rotary_factor", {"1", "1.0"}, "rotary positions turn the whole head"},
};
constexpr Fixed kFixedForGpt2[] = {
    {"rope_scaling", {}, "positions are learned"},
    {"activation_function",
     {"gelu_new", "gelu_pytorch_tanh"},
     "only the tanh form of GELU is known"},
    {"scale_attn_weights", {"true"}, "scores are divided by sqrt(head size)"},
    {"scale_attn_by_inverse_layer_idx", {"false"}, "all layers scale their scores alike"},
    {"reorder_and_upcast_attn", {"false"}, "attention has one order of operations"},
    {"n_special", {"0"}, "the vocabulary is vocab_size"},
};
constexpr Fixed kFixedForLlamaLike[] = {
    {"hidden_act", {"silu"}, "the feed-forward layer is SwiGLU"},
    {"pretraining_tp", {"1"}, "matrix products are not split as in pre-training"},
    {"rope_interleaved", {"false"}, "rotary positions turn the halves of a head"},
    {"use_mrope", {"false"}, "rotary positions are those of tokens in one row"},
};

// "{}" and "[]" for an empty map and list, the text of a scalar; nothing that `accepted` lists
// otherwise.
std::string comparable(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return node.text;
  if (!node.items.empty()) return "(a value)";
  return node.kind == Node::Kind::kMap ? "{}" : "[]";
}

// Of the folder that holds config.json, as downloads do, or of a file with another name.
// Hugging Face's cache has it in models--<owner>--<name>/snapshots/<commit>. Empty: it has none.
std::string nameByPlace(const std::string& file) {
  const std::filesystem::path path = std::filesystem::path(file).lexically_normal();
  if (path.filename() != "config.json") return path.stem().string();
  const std::filesystem::path folder = path.parent_path(), above = folder.parent_path();
  std::string name = (above.filename() == "snapshots" ? above.parent_path() : folder).filename();
  if (name.starts_with("models--")) name = name.substr(name.rfind("--") + 2);
  return name == "." || name == ".." || !isValidUtf8(name) ? "" : name;
}

class Importer {
 public:
  Importer(const Node& root, const std::string& name) : map_(name, root) {
    map_.treatNullAsAbsent();
  }

  Result<ModelSpec> import() {
    const HfFamily family = readFamily();
    if (map_.firstValueError().ok()) checkArchitectures(family);
    if (map_.firstValueError().ok()) checkDense();
    // The options of another model would only hide this.
    if (Status status = map_.firstValueError(); !status.ok()) return Error(std::move(status));
    for (const std::string_view key : kHarmless) map_.child(key);
    demandAll(kFixedForAll);
    map_.optional("_name_or_path", &model_.name);
    if (model_.name.empty()) model_.name = nameByPlace(map_.file());
    if (model_.name.empty())
      model_.name = std::string(nameOf(std::span<const EnumName<HfFamily>>(kFamilies), family));
    map_.required("vocab_size", &model_.vocabSize);
    map_.optional("initializer_range", &model_.initStd);
    if (family == HfFamily::kGpt2)
      readGpt2();
    else
      readLlamaLike(family);
    return finish();
  }

 private:
  // A name that is like one of these is another model all the same.
  HfFamily readFamily() {
    std::string type;
    map_.required("model_type", &type);
    for (const auto& [name, family] : kFamilies)
      if (type == name) return family;
    if (!type.empty())
      map_.fail(*map_.child("model_type"),
                fmt::format("{} is not supported; supported: gpt2, llama, mistral, qwen2; another "
                            "dense model of Llama's shape can be written as a model file (family: "
                            "llama, and head_size where it is not hidden / heads)",
                            quoteForMessage(type)));
    return HfFamily::kGpt2;
  }

  // By the keys of mixtral, qwen2_moe and deepseek, which relatives keep with a dense model_type.
  void checkDense() {
    for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      int64_t experts = 0;
      map_.optional(key, &experts);
      if (experts > 1)
        map_.fail(*map_.child(key), fmt::format("is {}: mixtures of experts are not planned, only "
                                                "dense models",
                                                experts));
    }
  }

  // Other heads, and relatives that keep the model_type, have other weights and operations.
  void checkArchitectures(HfFamily family) {
    const Node* node = map_.child("architectures");
    if (!node) return;
    if (node->kind != Node::Kind::kList)
      return map_.fail(*node, fmt::format("expected a list of names, got {}", describe(*node)));
    const std::vector<std::string_view> known = architecturesOf(family);
    for (const Node& name : node->items)
      if (std::find(known.begin(), known.end(), withoutFsdp(name.text)) != known.end()) return;
    if (node->items.empty()) return;
    map_.fail(*node, fmt::format("{} is not supported (accepted: {}): of model_type {} only the "
                                 "causal language model is known",
                                 describe(node->items.front()), fmt::join(known, ", "),
                                 nameOf(std::span<const EnumName<HfFamily>>(kFamilies), family)));
  }

  template <size_t kCount>
  void demandAll(const Fixed (&list)[kCount]) {
    for (const Fixed& fixed : list) demand(fixed);
  }

  void demand(const Fixed& fixed) {
    const Node* node = map_.child(fixed.key);
    if (!node) return;
    const std::string value = comparable(*node);
    std::vector<std::string_view> accepted;
    for (const std::string_view candidate : fixed.accepted) {
      if (candidate.empty()) continue;
      if (value == candidate) return;
      accepted.push_back(candidate);
    }
    if (accepted.empty()) accepted.push_back("null");
    map_.fail(*node, fmt::format("{} is not supported (accepted: {}): {}", describe(*node),
                                 fmt::join(accepted, ", "), fixed.why));
  }

  void readGpt2() {
    demandAll(kFixedForGpt2);
    hfKeys_ = {{"name", "_name_or_path"},
               {"layers", "n_layer"},
               {"hidden_size", "n_embd"},
               {"heads", "n_head"},
               {"kv_heads", "n_head"},
               {"head_size", "n_head"},
               {"ffn_size", "n_inner"},
               {"max_sequence", "n_positions"},
               {"norm_epsilon", "layer_norm_epsilon"}};
    model_.family = ModelFamily::kGpt;
    map_.required("n_layer", &model_.numLayers);
    map_.required("n_embd", &model_.hiddenSize);
    map_.required("n_head", &model_.numHeads);
    map_.required("n_positions", &model_.maxSequence);
    int64_t context = model_.maxSequence;
    map_.optional("n_ctx", &context);
    if (context != model_.maxSequence) {
      map_.fail(*map_.child("n_ctx"),
                fmt::format("differs from n_positions ({})", model_.maxSequence));
    }
    if (model_.hiddenSize > 0 && model_.hiddenSize <= kMaxSize)
      model_.ffnSize = 4 * model_.hiddenSize;
    map_.optional("n_inner", &model_.ffnSize);
    map_.optional("layer_norm_epsilon", &model_.normEpsilon);
    map_.optional("tie_word_embeddings", &model_.tiedEmbeddings);
    model_.numKvHeads = model_.numHeads;
    deriveHeadSize("n_head", "n_embd");
  }

  void readLlamaLike(HfFamily family) {
    demandAll(kFixedForLlamaLike);
    hfKeys_ = {{"name", "_name_or_path"},
               {"layers", "num_hidden_layers"},
               {"heads", "num_attention_heads"},
               {"kv_heads", "num_key_value_heads"},
               {"head_size", "head_dim"},
               {"ffn_size", "intermediate_size"},
               {"max_sequence", "max_position_embeddings"},
               {"norm_epsilon", "rms_norm_eps"}};
    model_.family = ModelFamily::kLlama;
    model_.norm = NormKind::kRmsNorm;
    model_.activation = ActivationKind::kSwiGlu;
    model_.position = PositionKind::kRotary;
    model_.linearBias = false;
    model_.qkvBias = family == HfFamily::kQwen2;
    model_.tiedEmbeddings = false;
    model_.normEpsilon = 1e-6;
    map_.required("num_hidden_layers", &model_.numLayers);
    map_.required("hidden_size", &model_.hiddenSize);
    map_.required("num_attention_heads", &model_.numHeads);
    map_.required("intermediate_size", &model_.ffnSize);
    map_.required("max_position_embeddings", &model_.maxSequence);
    readKvHeads(family);
    map_.optional("rms_norm_eps", &model_.normEpsilon);
    map_.optional("tie_word_embeddings", &model_.tiedEmbeddings);
    if (map_.child("head_dim"))
      map_.required("head_dim", &model_.headSize);
    else
      deriveHeadSize("num_attention_heads", "hidden_size");
    readRope();
    readLayerTypes();
    if (family == HfFamily::kLlama) readLlamaBiases();
    if (family == HfFamily::kMistral) readMistralWindow();
    if (family == HfFamily::kQwen2) readQwen2Window();
  }

  // The default is a number in two of the classes; null means "as many as heads" in all three.
  void readKvHeads(HfFamily family) {
    model_.numKvHeads = model_.numHeads;
    if (map_.isAbsent("num_key_value_heads")) {
      if (family == HfFamily::kMistral) model_.numKvHeads = 8;
      if (family == HfFamily::kQwen2) model_.numKvHeads = 32;
    }
    map_.optional("num_key_value_heads", &model_.numKvHeads);
  }

  void deriveHeadSize(std::string_view headsKey, std::string_view hiddenKey) {
    if (model_.numHeads < 1 || model_.hiddenSize < 1) return;
    if (model_.hiddenSize % model_.numHeads != 0) {
      if (const Node* node = map_.child(headsKey))
        map_.fail(*node, fmt::format("{} does not divide {} ({})", model_.numHeads, hiddenKey,
                                     model_.hiddenSize));
      return;
    }
    model_.headSize = model_.hiddenSize / model_.numHeads;
  }

  // Newer files keep the base in a map, {rope_theta: ..., rope_type: default}.
  void readRope() {
    map_.optional("rope_theta", &model_.ropeTheta);
    double theta = model_.ropeTheta;
    const std::optional<RopeScaling> older = readRopeMap("rope_scaling", nullptr);
    const std::optional<RopeScaling> newer = readRopeMap("rope_parameters", &theta);
    if (older && newer && *older != *newer)
      map_.fail(*map_.child("rope_parameters"),
                fmt::format("the scaling is {}, but that of rope_scaling is {}",
                            ropeScalingText(*newer), ropeScalingText(*older)));
    model_.ropeScaling = newer.value_or(older.value_or(RopeScaling{}));
    model_.ropeTheta = theta;
  }

  // The scaling of a map; nothing if there is no such map, it says nothing of it, or it is refused.
  std::optional<RopeScaling> readRopeMap(std::string_view key, double* theta) {
    const Node* node = map_.child(key);
    if (!node) return std::nullopt;
    MapReader rope(map_.file(), *node, std::string(key) + ".");
    rope.treatNullAsAbsent();
    const std::optional<RopeScalingKind> kind = readRopeType(rope);
    if (!kind) {
      // The options of another type would only hide this.
      map_.merge(rope.firstValueError());
      return std::nullopt;
    }
    const RopeScaling scaling = readRopeNumbers(rope, *kind);
    if (theta) {
      rope.optional("rope_theta", theta);
      if (map_.child("rope_theta") && *theta != model_.ropeTheta)
        rope.fail(*rope.child("rope_theta"), "differs from rope_theta outside the map");
    }
    map_.merge(rope.finish(MapReader::Unknown::kCannotTell));
    const bool isSaid = rope.child("type") || rope.child("rope_type") || rope.child("factor");
    return isSaid ? std::optional(scaling) : std::nullopt;
  }

  // Without a type nothing is scaled, whatever numbers are there; whoever wrote them meant another.
  std::optional<RopeScalingKind> readAbsentRopeType(MapReader& rope) {
    double factor = 1;
    rope.optional("factor", &factor);
    if (!rope.firstValueError().ok()) return std::nullopt;
    const Node* number = factor == 1 ? nullptr : rope.child("factor");
    const char* types = "linear or llama3";
    for (const char* key :
         {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
      if (const Node* node = rope.child(key)) {
        number = node;
        types = "llama3";
      }
    if (!number) return RopeScalingKind::kNone;
    rope.fail(*number, fmt::format("has no effect without rope_type, which is missing (such a "
                                   "number is of {})",
                                   types));
    return std::nullopt;
  }

  // Some files have both keys. Within max_position_embeddings dynamic with a factor of 1 does
  // nothing, as linear with that factor.
  std::optional<RopeScalingKind> readRopeType(MapReader& rope) {
    if (!rope.child("type") && !rope.child("rope_type")) return readAbsentRopeType(rope);
    std::string older = "default";
    rope.optional("type", &older);
    std::string type = older;
    rope.optional("rope_type", &type);
    if (!rope.firstValueError().ok()) return std::nullopt;
    if (rope.child("type") && type != older) {
      rope.fail(*rope.child("rope_type"),
                fmt::format("{}, but type is {}", quoteForMessage(type), quoteForMessage(older)));
      return std::nullopt;
    }
    if (type == "default") return RopeScalingKind::kNone;
    double factor = 0;
    if (type == "dynamic") rope.optional("factor", &factor);
    if (factor == 1) return RopeScalingKind::kLinear;
    const std::optional<RopeScalingKind> kind = parseRopeScalingKind(type);
    if (kind && *kind != RopeScalingKind::kNone) return kind;
    rope.fail(
        *rope.child(rope.child("rope_type") ? "rope_type" : "type"),
        fmt::format("{} is not supported (accepted: default, linear, llama3, and dynamic with "
                    "factor 1)",
                    quoteForMessage(type)));
    return std::nullopt;
  }

  void readLayerTypes() {
    const Node* types = map_.child("layer_types");
    if (!types) return;
    if (types->kind != Node::Kind::kList) {
      map_.fail(*types, fmt::format("expected a list, got {}", describe(*types)));
      return;
    }
    for (const Node& type : types->items)
      if (type.text != "full_attention")
        map_.fail(*types,
                  fmt::format("{} is not supported (accepted: full_attention)", describe(type)));
    const auto count = static_cast<int64_t>(types->items.size());
    if (map_.child("num_hidden_layers") && count != model_.numLayers)
      map_.fail(*types, fmt::format("has {} entr{}, but num_hidden_layers is {}", count,
                                    count == 1 ? "y" : "ies", model_.numLayers));
  }

  // In Llama, attention_bias adds biases to q, k, v and the output, mlp_bias to the feed-forward
  // matrices. ModelSpec has one switch for q, k, v and one for all others: both or none.
  void readLlamaBiases() {
    bool attention = false;
    bool mlp = false;
    map_.optional("attention_bias", &attention);
    map_.optional("mlp_bias", &mlp);
    if (attention != mlp) {
      const std::string_view key = attention ? "attention_bias" : "mlp_bias";
      map_.fail(*map_.child(key),
                "true is supported only if attention_bias and mlp_bias are both true");
    }
    model_.qkvBias = attention;
    model_.linearBias = attention && mlp;
  }

  void readMistralWindow() {
    // The default of the class is 4096; null is full attention.
    int64_t window = map_.isAbsent("sliding_window") ? 4096 : kMaxSize;
    map_.optional("sliding_window", &window);
    refuseWindow("sliding_window", window);
  }

  void readQwen2Window() {
    bool used = false;
    int64_t window = map_.isAbsent("sliding_window") ? 4096 : kMaxSize;
    int64_t fullLayers = 0;  // Layers before this have full attention; all others a window.
    map_.optional("use_sliding_window", &used);
    map_.optional("sliding_window", &window);
    map_.optional("max_window_layers", &fullLayers);
    if (used && fullLayers < model_.numLayers) refuseWindow("use_sliding_window", window);
  }

  void refuseWindow(std::string_view key, int64_t window) {
    if (window >= model_.maxSequence) return;
    const std::string message = fmt::format(
        "attention within a sliding window of {0} tokens is not supported, and "
        "max_position_embeddings is {1}; "
        "sequences of up to {0} tokens are unaffected: set max_position_embeddings to {0} to train "
        "those, or the window to null for full attention",
        window, model_.maxSequence);
    if (const Node* node = map_.child(key))
      map_.fail(*node, message);
    else
      map_.merge(map_.errorFor({std::string(key), message}));
  }

  Result<ModelSpec> finish() {
    if (Status status = map_.finish(MapReader::Unknown::kCannotTell); !status.ok())
      return Error(std::move(status));
    if (std::optional<Problem> problem = findProblem(model_)) {
      for (const auto& [ours, theirs] : hfKeys_)
        if (problem->key == ours) {
          problem->key = theirs;
          break;
        }
      return Error(map_.errorFor(*problem));
    }
    return model_;
  }

  MapReader map_;
  ModelSpec model_;
  std::vector<std::pair<std::string_view, std::string_view>> hfKeys_;
};

}  // namespace

Result<std::vector<ForeignDropout>> importDropout(const Node& root, const std::string& name) {
  std::vector<ForeignDropout> found;
  if (root.find("model_type") == nullptr) return found;
  MapReader map(name, root);
  map.treatNullAsAbsent();
  for (ForeignDropout dropout : {ForeignDropout{"embd_pdrop", "embedding_dropout"},
                                 ForeignDropout{"attn_pdrop", "attention_dropout"},
                                 ForeignDropout{"attention_dropout", "attention_dropout"},
                                 ForeignDropout{"resid_pdrop", "residual_dropout"},
                                 ForeignDropout{"hidden_dropout", "residual_dropout"}}) {
    if (!map.child(dropout.option)) continue;
    map.optional(dropout.option, &dropout.probability);
    found.push_back(dropout);
  }
  TRIREME_RETURN_IF_ERROR(map.firstValueError());
  return found;
}

Result<ModelSpec> importHuggingFace(const Node& root, const std::string& name) {
  return Importer(root, name).import();
}

}  // namespace trireme::spec
