#include "cli/weights/hugging_face.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ir/plan/plan.h"

namespace trireme::cli {
namespace {

using runtime::ForeignTensor;
using runtime::ForeignWeights;
using runtime::OwnTensor;
using runtime::RowBlock;
using spec::ModelSpec;

bool isGpt(const ModelSpec& m) { return m.family == spec::ModelFamily::kGpt; }

// The families differ in more than one switch of ModelSpec; no other combination has a class.
Status checkFamily(const ModelSpec& m) {
  const auto need = [&](bool holds, std::string_view what) {
    return holds
               ? Status()
               : invalidArgument(fmt::format("model {}: Hugging Face's {} {}", m.name,
                                             isGpt(m) ? "gpt2 has" : "llama and qwen2 have", what));
  };
  if (isGpt(m)) {
    TRIREME_RETURN_IF_ERROR(need(m.norm == spec::NormKind::kLayerNorm, "LayerNorm"));
    TRIREME_RETURN_IF_ERROR(
        need(m.activation == spec::ActivationKind::kGeluTanh, "GELU in its tanh form"));
    TRIREME_RETURN_IF_ERROR(need(m.position == spec::PositionKind::kLearned, "learned positions"));
    TRIREME_RETURN_IF_ERROR(need(m.qkvBias && m.linearBias, "biases of all matrices"));
    TRIREME_RETURN_IF_ERROR(need(m.numKvHeads == m.numHeads, "a key and a value of every head"));
    return need(m.headSize * m.numHeads == m.hiddenSize, "heads that share the hidden size");
  }
  TRIREME_RETURN_IF_ERROR(need(m.norm == spec::NormKind::kRmsNorm, "RMSNorm"));
  TRIREME_RETURN_IF_ERROR(need(m.activation == spec::ActivationKind::kSwiGlu, "SwiGLU"));
  TRIREME_RETURN_IF_ERROR(need(m.position == spec::PositionKind::kRotary, "rotary positions"));
  return need(m.qkvBias || !m.linearBias, "no biases of other matrices without those of q, k, v");
}

class Builder {
 public:
  explicit Builder(const ModelSpec& model) : m_(model) {}

  ForeignWeights build() {
    weights_.prefix = isGpt(m_) ? "transformer." : "model.";
    isGpt(m_) ? addGpt2() : addLlama();
    if (m_.tiedEmbeddings) {
      weights_.copies.push_back({"lm_head.weight", 0});  // of what embeds words
    } else {
      matrix("lm_head.weight", m_.vocabSize, m_.hiddenSize);
      weights_.tensors.back().mayHavePrefix = false;
      whole("head.weight");
    }
    return std::move(weights_);
  }

 private:
  size_t matrix(std::string name, int64_t rows, int64_t cols) {
    ForeignTensor tensor{std::move(name), rows, cols};
    tensor.isTransposed = isConv1d_;
    weights_.tensors.push_back(std::move(tensor));
    return weights_.tensors.size() - 1;
  }
  size_t vector(std::string name, int64_t size) {
    ForeignTensor tensor{std::move(name), size, 1};
    tensor.isVector = true;
    weights_.tensors.push_back(std::move(tensor));
    return weights_.tensors.size() - 1;
  }
  // Ours is the last foreign tensor.
  void whole(std::string own) {
    const ForeignTensor& tensor = weights_.tensors.back();
    weights_.own.push_back(
        {std::move(own), tensor.cols, {{weights_.tensors.size() - 1, 0, 0, tensor.rows}}});
  }
  void addVector(const std::string& name, int64_t size, std::string own) {
    vector(name, size);
    whole(std::move(own));
  }
  // A matrix and, if there is one, its bias.
  void addLinear(const std::string& name, int64_t rows, int64_t cols, bool bias,
                 const std::string& own) {
    matrix(name + ".weight", rows, cols);
    whole(own + ".weight");
    if (bias) addVector(name + ".bias", rows, own + ".bias");
  }
  void addNorm(const std::string& name, const std::string& own) {
    addVector(name + ".weight", m_.hiddenSize, own + ".weight");
    if (isGpt(m_)) addVector(name + ".bias", m_.hiddenSize, own + ".bias");
  }

  // Where the rows of queries, keys and values begin: in one tensor or in three.
  struct Source {
    size_t foreign;
    int64_t row;
  };
  // By key/value head: its queries, its key, its value.
  void addGrouped(std::string own, int64_t cols, Source q, Source k, Source v) {
    const int64_t perGroup = m_.numHeads / m_.numKvHeads * m_.headSize;
    OwnTensor tensor{std::move(own), cols, {}};
    int64_t row = 0;
    const auto take = [&](Source& source, int64_t count) {
      tensor.blocks.push_back({source.foreign, source.row, row, count});
      source.row += count;
      row += count;
    };
    for (int64_t group = 0; group < m_.numKvHeads; ++group) {
      take(q, perGroup);
      take(k, m_.headSize);
      take(v, m_.headSize);
    }
    weights_.own.push_back(std::move(tensor));
  }

  void addGpt2() {
    const int64_t h = m_.hiddenSize;
    matrix("wte.weight", m_.vocabSize, h);
    whole("embedding.word.weight");
    matrix("wpe.weight", m_.maxSequence, h);
    whole("embedding.position.weight");
    for (int64_t i = 0; i < m_.numLayers; ++i) {
      const std::string name = fmt::format("h.{}.", i), own = fmt::format("layers.{}.", i);
      isConv1d_ = true;
      addNorm(name + "ln_1", own + "attn_norm");
      const size_t weight = matrix(name + "attn.c_attn.weight", 3 * h, h);
      addGrouped(own + "attn.qkv.weight", h, {weight, 0}, {weight, h}, {weight, 2 * h});
      const size_t bias = vector(name + "attn.c_attn.bias", 3 * h);
      addGrouped(own + "attn.qkv.bias", 1, {bias, 0}, {bias, h}, {bias, 2 * h});
      addLinear(name + "attn.c_proj", h, h, true, own + "attn.out");
      addNorm(name + "ln_2", own + "mlp_norm");
      addLinear(name + "mlp.c_fc", m_.ffnSize, h, true, own + "mlp.up");
      addLinear(name + "mlp.c_proj", h, m_.ffnSize, true, own + "mlp.down");
      isConv1d_ = false;
    }
    addNorm("ln_f", "final_norm");
    weights_.ignored = {".attn.bias", ".attn.masked_bias"};  // causal masks of older files
  }

  void addLlama() {
    const int64_t h = m_.hiddenSize, q = m_.numHeads * m_.headSize,
                  kv = m_.numKvHeads * m_.headSize;
    matrix("embed_tokens.weight", m_.vocabSize, h);
    whole("embedding.word.weight");
    for (int64_t i = 0; i < m_.numLayers; ++i) {
      const std::string name = fmt::format("layers.{}.", i), own = name;
      const std::string attention = name + "self_attn.";
      addNorm(name + "input_layernorm", own + "attn_norm");
      const size_t wq = matrix(attention + "q_proj.weight", q, h);
      const size_t wk = matrix(attention + "k_proj.weight", kv, h);
      const size_t wv = matrix(attention + "v_proj.weight", kv, h);
      addGrouped(own + "attn.qkv.weight", h, {wq, 0}, {wk, 0}, {wv, 0});
      if (m_.qkvBias) {
        const size_t bq = vector(attention + "q_proj.bias", q);
        const size_t bk = vector(attention + "k_proj.bias", kv);
        const size_t bv = vector(attention + "v_proj.bias", kv);
        addGrouped(own + "attn.qkv.bias", 1, {bq, 0}, {bk, 0}, {bv, 0});
      }
      addLinear(attention + "o_proj", h, q, m_.linearBias, own + "attn.out");
      addNorm(name + "post_attention_layernorm", own + "mlp_norm");
      addGateUp(name + "mlp.", own + "mlp.gate_up");
      addLinear(name + "mlp.down_proj", h, m_.ffnSize, m_.linearBias, own + "mlp.down");
    }
    addNorm("norm", "final_norm");
    weights_.ignored = {".rotary_emb.inv_freq"};
  }

  void addGateUp(const std::string& name, const std::string& own) {
    const int64_t f = m_.ffnSize, h = m_.hiddenSize;
    const size_t gate = matrix(name + "gate_proj.weight", f, h);
    const size_t up = matrix(name + "up_proj.weight", f, h);
    weights_.own.push_back({own + ".weight", h, {{gate, 0, 0, f}, {up, 0, f, f}}});
    if (!m_.linearBias) return;
    const size_t gateBias = vector(name + "gate_proj.bias", f);
    const size_t upBias = vector(name + "up_proj.bias", f);
    weights_.own.push_back({own + ".bias", 1, {{gateBias, 0, 0, f}, {upBias, 0, f, f}}});
  }

  const ModelSpec& m_;
  bool isConv1d_ = false;
  ForeignWeights weights_;
};

nlohmann::ordered_json configOf(const RopeScaling& scaling) {
  nlohmann::ordered_json config = {{"rope_type", ropeScalingName(scaling.kind)},
                                   {"factor", scaling.factor}};
  if (scaling.kind == RopeScalingKind::kLlama3)
    config.update({{"low_freq_factor", scaling.lowFreqFactor},
                   {"high_freq_factor", scaling.highFreqFactor},
                   {"original_max_position_embeddings", scaling.originalSequence}});
  return config;
}

}  // namespace

Result<ForeignWeights> huggingFaceWeights(const ModelSpec& model) {
  TRIREME_RETURN_IF_ERROR(checkFamily(model));
  ForeignWeights weights = Builder(model).build();
  weights.modelFingerprint = plan::fingerprintOf(model);
  return weights;
}

Result<std::string> huggingFaceConfig(const ModelSpec& m) {
  TRIREME_RETURN_IF_ERROR(checkFamily(m));
  nlohmann::ordered_json config;
  if (isGpt(m)) {
    config = {{"architectures", {"GPT2LMHeadModel"}},
              {"model_type", "gpt2"},
              {"n_layer", m.numLayers},
              {"n_embd", m.hiddenSize},
              {"n_head", m.numHeads},
              {"n_inner", m.ffnSize},
              {"n_positions", m.maxSequence},
              {"layer_norm_epsilon", m.normEpsilon},
              {"activation_function", "gelu_new"}};
  } else {
    const bool isQwen2 = m.qkvBias && !m.linearBias;
    config = {{"architectures", {isQwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
              {"model_type", isQwen2 ? "qwen2" : "llama"},
              {"num_hidden_layers", m.numLayers},
              {"hidden_size", m.hiddenSize},
              {"num_attention_heads", m.numHeads},
              {"num_key_value_heads", m.numKvHeads},
              {"head_dim", m.headSize},
              {"intermediate_size", m.ffnSize},
              {"max_position_embeddings", m.maxSequence},
              {"rms_norm_eps", m.normEpsilon},
              {"rope_theta", m.ropeTheta},
              {"hidden_act", "silu"}};
    if (m.ropeScaling != RopeScaling{}) config["rope_scaling"] = configOf(m.ropeScaling);
    if (!isQwen2) config.update({{"attention_bias", m.qkvBias}, {"mlp_bias", m.linearBias}});
  }
  config["vocab_size"] = m.vocabSize;
  config["tie_word_embeddings"] = m.tiedEmbeddings;
  config["initializer_range"] = m.initStd;
  return config.dump(2) + "\n";
}

}  // namespace trireme::cli
