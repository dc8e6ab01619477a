#include "ir/graph/semantics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace trireme::graph {
namespace {

using program::OperandType;
using Dims = std::vector<int64_t>;

// In the order of Label.
constexpr std::array<std::string_view, kNumLabels> kLabelNames = {
    "sequence", "batch",   "hidden", "group",    "head_width", "context_width",
    "ffn",      "gate_up", "vocab",  "position", "one",        "head"};

// So that no size of an op overflows.
constexpr int64_t kMaxHeads = int64_t{1} << 16;  // head size, heads per group
constexpr int64_t kMaxSize = int64_t{1} << 40;   // of a dim

constexpr uint32_t bit(Label label) { return 1u << static_cast<unsigned>(label); }
constexpr uint32_t kNothing = 0;
constexpr uint32_t kHiddenDim = bit(Label::kHidden);
constexpr uint32_t kHeadDims = bit(Label::kHeadWidth);
constexpr uint32_t kAttentionDims =
    bit(Label::kSequence) | bit(Label::kHeadWidth) | bit(Label::kContextWidth);

// The signature of an op, in the notation of op.h: "c[s,b,k...]".
//   type   c compute (any float, the same everywhere), p a parameter (compute type), s state,
//          i i32, d f64; "+" accumulates
//   dims   a letter is one size wherever it appears, "k..." is one or more dims, a digit is itself
// e, c and H (heads = g * headsPerGroup) follow from the attributes. A letter that only an output
// has is the argument `rows`. Of labels, a letter is the one of labelOf(), and "k..." is any.
struct OpRule {
  OpKind kind;
  std::array<std::string_view, 5> inputs;
  std::array<std::string_view, 3> outputs;
  uint32_t whole;  // labels that must be whole
};

constexpr std::array<OpRule, program::kNumOpKinds> kRules = {{
    {OpKind::kEmbedding, {"i[s,b]", "p[v,h]"}, {"c[s,b,h]"}, kNothing},
    {OpKind::kAddPosition, {"c[s,b,h]", "p[n,h]"}, {"c[s,b,h]"}, bit(Label::kPosition)},
    {OpKind::kDropout, {"c[s,b,x...]"}, {"c[s,b,x...]"}, kHiddenDim},
    {OpKind::kLayerNorm,
     {"c[s,b,h]", "p[h]", "p[h]"},
     {"c[s,b,h]", "s[s,b]", "s[s,b]"},
     kHiddenDim},
    {OpKind::kRmsNorm, {"c[s,b,h]", "p[h]"}, {"c[s,b,h]", "s[s,b]"}, kHiddenDim},
    {OpKind::kMatmul, {"c[s,b,k...]", "p[o...,k...]"}, {"c[s,b,o...]"}, kNothing},
    {OpKind::kBiasAdd, {"c[s,b,o...]", "p[o...]"}, {"c[s,b,o...]"}, kNothing},
    {OpKind::kGelu, {"c[x...]"}, {"c[x...]"}, kNothing},
    {OpKind::kSwiGlu, {"c[s,b,2,f]"}, {"c[s,b,f]"}, bit(Label::kGateUp)},
    {OpKind::kRotary, {"c[s,b,g,e]"}, {"c[s,b,g,e]"}, kHeadDims},
    {OpKind::kAttention, {"c[s,b,g,e]"}, {"c[s,b,g,c]", "s[b,H,s]"}, kAttentionDims},
    {OpKind::kAdd, {"c[x...]", "c[x...]"}, {"c[x...]"}, kNothing},
    {OpKind::kLossMax, {"c[s,b,v]"}, {"s[s,b]"}, kNothing},
    {OpKind::kLossTarget, {"c[s,b,v]", "s[s,b]", "i[s,b]"}, {"s[s,b]"}, kNothing},
    {OpKind::kLossSumExp, {"c[s,b,v]", "s[s,b]"}, {"s[s,b]"}, kNothing},
    {OpKind::kTokenLoss, {"s[s,b]", "s[s,b]"}, {"+d[1]"}, kNothing},
    {OpKind::kEmbeddingGrad, {"i[s,b]", "c[s,b,h]"}, {"+s[v,h]"}, kNothing},
    {OpKind::kPositionGrad, {"c[s,b,h]"}, {"+s[n,h]"}, bit(Label::kPosition)},
    {OpKind::kLayerNormGrad,
     {"c[s,b,h]", "p[h]", "s[s,b]", "s[s,b]", "c[s,b,h]"},
     {"c[s,b,h]", "+s[h]", "+s[h]"},
     kHiddenDim},
    {OpKind::kRmsNormGrad,
     {"c[s,b,h]", "p[h]", "s[s,b]", "c[s,b,h]"},
     {"c[s,b,h]", "+s[h]"},
     kHiddenDim},
    {OpKind::kMatmulGradInput, {"c[s,b,o...]", "p[o...,k...]"}, {"c[s,b,k...]"}, kNothing},
    {OpKind::kMatmulGradWeight, {"c[s,b,o...]", "c[s,b,k...]"}, {"+s[o...,k...]"}, kNothing},
    {OpKind::kBiasGrad, {"c[s,b,o...]"}, {"+s[o...]"}, kNothing},
    {OpKind::kGeluGrad, {"c[x...]", "c[x...]"}, {"c[x...]"}, kNothing},
    {OpKind::kSwiGluGrad, {"c[s,b,2,f]", "c[s,b,f]"}, {"c[s,b,2,f]"}, bit(Label::kGateUp)},
    {OpKind::kRotaryGrad, {"c[s,b,g,e]"}, {"c[s,b,g,e]"}, kHeadDims},
    {OpKind::kAttentionGrad,
     {"c[s,b,g,e]", "c[s,b,g,c]", "s[b,H,s]", "c[s,b,g,c]"},
     {"c[s,b,g,e]"},
     kAttentionDims},
    {OpKind::kLossGrad, {"c[s,b,v]", "s[s,b]", "s[s,b]", "i[s,b]"}, {"c[s,b,v]"}, kNothing},
}};

constexpr bool rulesAreInOrderOfOpKind() {
  for (size_t i = 0; i < kRules.size(); ++i)
    if (kRules[i].kind != static_cast<OpKind>(i)) return false;
  return true;
}
static_assert(rulesAreInOrderOfOpKind());

const OpRule& ruleOf(OpKind kind) { return kRules[static_cast<size_t>(kind)]; }

template <size_t kCount>
size_t countPatterns(const std::array<std::string_view, kCount>& patterns) {
  return static_cast<size_t>(std::count_if(patterns.begin(), patterns.end(),
                                           [](std::string_view p) { return !p.empty(); }));
}

// "+s[o...,k...]" taken apart.
struct Pattern {
  bool accumulates = false;
  char type = 'c';
  struct Item {
    char letter;
    bool variadic;
  };
  class Items {
   public:
    const Item* begin() const { return items_.data(); }
    const Item* end() const { return items_.data() + size_; }
    void push_back(Item item) { items_.at(size_++) = item; }

   private:
    std::array<Item, 4> items_{};  // no rule has more
    size_t size_ = 0;
  };
  Items items;
};

Pattern parsePattern(std::string_view text) {
  Pattern pattern;
  if (text.front() == '+') {
    pattern.accumulates = true;
    text.remove_prefix(1);
  }
  pattern.type = text.front();
  for (size_t i = 2; i < text.size(); ++i)  // Behind "c["; a letter stands before ',' '.' or ']'.
    if (text[i] != ',' && text[i] != '.' && text[i] != ']')
      pattern.items.push_back({text[i], text[i + 1] == '.'});
  return pattern;
}

std::string printType(const OperandType& type) {
  return fmt::format("{}[{}]", dtypeName(type.dtype), fmt::join(type.dims, ","));
}

// What the letters of one op's signature stand for: sizes, or labels.
class Binding {
 public:
  Binding() { dims_.reserve(8); }

  void set(char letter, Dims dims) {
    for (auto& [known, old] : dims_)
      if (known == letter) {
        old = std::move(dims);
        return;
      }
    dims_.emplace_back(letter, std::move(dims));
  }

  // nullptr: unbound.
  const Dims* find(char letter) const {
    for (const auto& [known, dims] : dims_)
      if (known == letter) return &dims;
    return nullptr;
  }

  // Binds the letters of `pattern`; false: `dims` does not match it.
  // At most one letter of a pattern is both variadic and unbound: it takes the dims that are left.
  bool bind(const Pattern& pattern, const Dims& dims) {
    size_t bound = 0;
    for (const auto& [letter, variadic] : pattern.items)
      if (const Dims* known = find(letter))
        bound += known->size();
      else if (!variadic)
        ++bound;
    std::vector<std::pair<char, Dims>> fresh;
    size_t next = 0;
    for (const auto& [letter, variadic] : pattern.items) {
      const Dims* known = find(letter);
      size_t width = 1;
      if (known)
        width = known->size();
      else if (variadic)
        width = dims.size() > bound ? dims.size() - bound : 0;
      if (width < 1 || next + width > dims.size()) return false;
      const auto part = dims.begin() + static_cast<long>(next);
      if (!known)
        fresh.emplace_back(letter, Dims(part, part + static_cast<long>(width)));
      else if (!std::equal(known->begin(), known->end(), part))
        return false;
      next += width;
    }
    if (next != dims.size()) return false;
    for (auto& [letter, part] : fresh)
      if (!find(letter)) dims_.emplace_back(letter, std::move(part));  // once, if it comes twice
    return true;
  }

 private:
  std::vector<std::pair<char, Dims>> dims_;  // few
};

// Matches the inputs of one op against its rule and remembers what every letter stands for.
class Matcher {
 public:
  Matcher(OpKind kind, const OpAttributes& attributes, DType state)
      : kind_(kind), attributes_(attributes), state_(state) {
    for (char digit = '1'; digit <= '2'; ++digit) sizes_.set(digit, {digit - '0'});
    if (usesHeads() && checkAttributes().ok()) {
      sizes_.set('e', {(attributes.headsPerGroup + 2) * attributes.headSize});
      sizes_.set('c', {attributes.headsPerGroup * attributes.headSize});
    }
  }

  Status checkAttributes() const {
    const auto isSize = [](int64_t n) { return n >= 1 && n <= kMaxHeads; };
    if (usesHeads() && (!isSize(attributes_.headSize) || !isSize(attributes_.headsPerGroup)))
      return invalidArgument(fmt::format(
          "{}: headSize {} and headsPerGroup {} must be at least 1 and at most {}",
          program::opName(kind_), attributes_.headSize, attributes_.headsPerGroup, kMaxHeads));
    return {};
  }

  Status bindInput(size_t index, const OperandType& type) {
    const std::string_view text = ruleOf(kind_).inputs[index];
    const Pattern pattern = parsePattern(text);
    if (std::any_of(type.dims.begin(), type.dims.end(),
                    [](int64_t dim) { return dim < 1 || dim > kMaxSize; }) ||
        !bindType(pattern.type, type.dtype) || !sizes_.bind(pattern, type.dims))
      return invalidArgument(fmt::format("{}: input {} is {}, expected {}{}",
                                         program::opName(kind_), index, printType(type), text,
                                         describe(pattern)));
    if (const Dims* groups = sizes_.find('g'))
      sizes_.set('H', {(*groups)[0] * attributes_.headsPerGroup});
    return {};
  }

  // Requires that all inputs were bound.
  Result<OperandType> output(size_t index, int64_t rows) {
    const Pattern pattern = parsePattern(ruleOf(kind_).outputs[index]);
    OperandType type;
    type.dtype = pattern.type == 'c' ? compute_ : pattern.type == 's' ? state_ : DType::kF64;
    for (const auto& [letter, variadic] : pattern.items) {
      if (!sizes_.find(letter)) {
        if (rows < 1)
          return Error(
              invalidArgument(fmt::format("{}: the inputs do not imply the rows of output "
                                          "{}; rows is {}, expected at least 1",
                                          program::opName(kind_), index, rows)));
        sizes_.set(letter, {rows});
      }
      const Dims& bound = *sizes_.find(letter);
      type.dims.insert(type.dims.end(), bound.begin(), bound.end());
    }
    return type;
  }

  // Every position that a token can have needs its row in the table of positions.
  Status checkPositions() const {
    const Dims* rows = sizes_.find('n');
    const Dims* tokens = sizes_.find('s');
    if (!rows || (*rows)[0] >= (*tokens)[0]) return {};
    return invalidArgument(fmt::format("{}: {} rows of positions for a sequence of {} tokens",
                                       program::opName(kind_), (*rows)[0], (*tokens)[0]));
  }

 private:
  bool usesHeads() const {
    return kind_ == OpKind::kRotary || kind_ == OpKind::kRotaryGrad ||
           kind_ == OpKind::kAttention || kind_ == OpKind::kAttentionGrad;
  }

  bool bindType(char expected, DType actual) {
    if (expected == 's') return actual == state_;
    if (expected == 'i') return actual == DType::kI32;
    if (actual == DType::kI32) return false;
    if (!computeIsBound_) compute_ = actual;
    computeIsBound_ = true;
    return actual == compute_;
  }

  // " with s = 4, k... = 6,2": what the message's reader needs to see the mismatch.
  std::string describe(const Pattern& pattern) const {
    std::vector<std::string> parts;
    if ((pattern.type == 'c' || pattern.type == 'p') && computeIsBound_)
      parts.push_back(fmt::format("compute type {}", dtypeName(compute_)));
    if (pattern.type == 's') parts.push_back(fmt::format("state type {}", dtypeName(state_)));
    for (const auto& [letter, variadic] : pattern.items)
      if (const Dims* found = sizes_.find(letter); found && !std::isdigit(letter))
        parts.push_back(
            fmt::format("{}{} = {}", letter, variadic ? "..." : "", fmt::join(*found, ",")));
    return parts.empty() ? "" : fmt::format(" with {}", fmt::join(parts, ", "));
  }

  OpKind kind_;
  const OpAttributes& attributes_;
  DType state_;
  DType compute_ = DType::kF32;
  bool computeIsBound_ = false;
  Binding sizes_;
};

Status checkNumInputs(OpKind kind, size_t n) {
  const size_t expected = countPatterns(ruleOf(kind).inputs);
  if (n == expected) return {};
  return invalidArgument(
      fmt::format("{}: {} inputs, expected {}", program::opName(kind), n, expected));
}

// The label that a letter stands for wherever it appears; nullopt: any ("k...").
std::optional<Label> labelOf(char letter) {
  switch (letter) {
    case 's':
      return Label::kSequence;
    case 'b':
      return Label::kBatch;
    case 'h':
      return Label::kHidden;
    case 'g':
      return Label::kGroup;
    case 'e':
      return Label::kHeadWidth;
    case 'c':
      return Label::kContextWidth;
    case 'f':
      return Label::kFfn;
    case '2':
      return Label::kGateUp;
    case 'v':
      return Label::kVocab;
    case 'n':
      return Label::kPosition;
    case '1':
      return Label::kOne;
    case 'H':
      return Label::kHead;
    default:
      return std::nullopt;
  }
}

Dims numbersOf(const Labels& labels) {
  Dims numbers;
  for (const Label label : labels) numbers.push_back(static_cast<int64_t>(label));
  return numbers;
}

// Binds the letters of `pattern` that have one label to it.
void bindLabels(const Pattern& pattern, Binding& labels) {
  for (const auto& [letter, variadic] : pattern.items)
    if (const std::optional<Label> label = labelOf(letter)) labels.set(letter, numbersOf({*label}));
}

// "[sequence, batch, ...]": what `pattern` matches, as far as it is known.
std::string printExpected(const Pattern& pattern, const Binding& labels) {
  std::vector<std::string> parts;
  for (const auto& [letter, variadic] : pattern.items) {
    const Dims* known = labels.find(letter);
    if (!known) parts.emplace_back("...");
    for (const int64_t number : known ? *known : Dims{})
      parts.emplace_back(labelName(static_cast<Label>(number)));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

Element elementOf(const Pattern& pattern) {
  switch (pattern.type) {
    case 's':
      return Element::kState;
    case 'i':
      return Element::kIndex;
    case 'd':
      return Element::kDouble;
    default:
      return Element::kCompute;
  }
}

// The forward's tensors tell parameters, data and activations apart, which types alone do not.
Status checkTensor(OpKind kind, size_t index, const Tensor& tensor) {
  const Pattern pattern = parsePattern(ruleOf(kind).inputs[index]);
  const bool isData = tensor.kind == TensorKind::kTokens || tensor.kind == TensorKind::kLabels;
  const char type = tensor.kind == TensorKind::kParameter ? 'p'
                    : isData                              ? 'i'
                    : tensor.element == Element::kCompute ? 'c'
                    : tensor.element == Element::kState   ? 's'
                                                          : 'd';
  if (type == pattern.type) return {};
  const auto describe = [](char letter) {
    return letter == 'p'   ? "a parameter"
           : letter == 'i' ? "token or label ids"
           : letter == 'c' ? "an activation"
           : letter == 's' ? "a statistic"
                           : "a sum in f64";
  };
  return invalidArgument(fmt::format("{}: input {} ('{}') is {}, expected {}",
                                     program::opName(kind), index, tensor.name, describe(type),
                                     describe(pattern.type)));
}

// Elements of an operand that one call touches, where that is not all of it: table rows and the
// label's logit are looked up per token.
int64_t touchedElements(const program::SegmentOp& op, const std::vector<OperandType>& operands,
                        int32_t operand) {
  const int64_t all = operands[operand].elements();
  switch (op.kind) {
    case OpKind::kEmbedding:  // As many table elements as output elements.
      return std::min(all, operands[op.outputs[0]].elements());
    case OpKind::kEmbeddingGrad:
      return std::min(all, operands[op.inputs[1]].elements());
    case OpKind::kAddPosition:
    case OpKind::kPositionGrad: {  // One table row per position: the batch shares it.
      const OperandType& x = operands[op.inputs[0]];
      const bool isTable = operands[operand].dims.size() == 2;
      return isTable ? std::min(all, x.dims[0] * x.dims[2]) : all;
    }
    case OpKind::kLossTarget:
      return std::min(all, operands[op.outputs[0]].elements());
    default:
      return all;
  }
}

}  // namespace

std::string_view labelName(Label label) { return kLabelNames[static_cast<size_t>(label)]; }

std::optional<Label> parseLabel(std::string_view name) {
  const auto found = std::find(kLabelNames.begin(), kLabelNames.end(), name);
  if (found == kLabelNames.end()) return std::nullopt;
  return static_cast<Label>(found - kLabelNames.begin());
}

std::string printLabels(const Labels& labels) {
  std::vector<std::string_view> names;
  for (const Label label : labels) names.push_back(labelName(label));
  return fmt::format("[{}]", fmt::join(names, ", "));
}

Labels labelsOf(const Tensor& tensor) {
  Labels labels;
  for (const Dim& dim : tensor.dims) labels.push_back(dim.label);
  return labels;
}

program::OperandType typeOf(const Tensor& tensor, spec::Precision precision) {
  program::OperandType type;
  switch (tensor.element) {
    case Element::kCompute:
      type.dtype = spec::computeDType(precision);
      break;
    case Element::kState:
      type.dtype = spec::stateDType(precision);
      break;
    case Element::kIndex:
      type.dtype = DType::kI32;
      break;
    case Element::kDouble:
      type.dtype = DType::kF64;
      break;
  }
  for (const Dim& dim : tensor.dims) type.dims.push_back(dim.size);
  return type;
}

Result<std::vector<OperandType>> inferOutputs(OpKind kind, const OpAttributes& attributes,
                                              const std::vector<OperandType>& inputs, DType state,
                                              int64_t rows) {
  const OpRule& rule = ruleOf(kind);
  TRIREME_RETURN_IF_ERROR(checkNumInputs(kind, inputs.size()));
  Matcher matcher(kind, attributes, state);
  TRIREME_RETURN_IF_ERROR(matcher.checkAttributes());
  for (size_t i = 0; i < inputs.size(); ++i)
    TRIREME_RETURN_IF_ERROR(matcher.bindInput(i, inputs[i]));
  std::vector<OperandType> outputs;
  for (size_t i = 0; i < countPatterns(rule.outputs); ++i) {
    TRIREME_ASSIGN_OR_RETURN(OperandType output, matcher.output(i, rows));
    outputs.push_back(std::move(output));
  }
  TRIREME_RETURN_IF_ERROR(matcher.checkPositions());
  return outputs;
}

Result<std::vector<Labels>> inferLabels(OpKind kind, const std::vector<Labels>& inputs) {
  const OpRule& rule = ruleOf(kind);
  TRIREME_RETURN_IF_ERROR(checkNumInputs(kind, inputs.size()));
  Binding binding;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Pattern pattern = parsePattern(rule.inputs[i]);
    bindLabels(pattern, binding);
    if (!binding.bind(pattern, numbersOf(inputs[i])))
      return Error(invalidArgument(fmt::format("{}: input {} has the dims {}, expected {}",
                                               program::opName(kind), i, printLabels(inputs[i]),
                                               printExpected(pattern, binding))));
  }
  std::vector<Labels> outputs;
  for (size_t i = 0; i < countPatterns(rule.outputs); ++i) {
    const Pattern pattern = parsePattern(rule.outputs[i]);
    bindLabels(pattern, binding);
    Labels& labels = outputs.emplace_back();
    for (const auto& [letter, variadic] : pattern.items)
      for (const int64_t number : *binding.find(letter))
        labels.push_back(static_cast<Label>(number));
  }
  return outputs;
}

Result<std::vector<Tensor>> inferTensors(OpKind kind, const OpAttributes& attributes,
                                         const std::vector<const Tensor*>& inputs) {
  if (!isForward(kind))
    return Error(invalidArgument(fmt::format(
        "{} is an op of the backward, which is derived from the forward", program::opName(kind))));
  TRIREME_RETURN_IF_ERROR(checkNumInputs(kind, inputs.size()));
  std::vector<OperandType> types;
  std::vector<Labels> labels;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TRIREME_RETURN_IF_ERROR(checkTensor(kind, i, *inputs[i]));
    types.push_back(typeOf(*inputs[i], spec::Precision::kBf16));
    labels.push_back(labelsOf(*inputs[i]));
  }
  TRIREME_ASSIGN_OR_RETURN(
      const std::vector<OperandType> outTypes,
      inferOutputs(kind, attributes, types, spec::stateDType(spec::Precision::kBf16)));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<Labels> outLabels, inferLabels(kind, labels));
  const auto hasHidden = [](const Labels& dims) {
    return std::find(dims.begin(), dims.end(), Label::kHidden) != dims.end();
  };
  const bool isOfHidden = mustBeWhole(kind, Label::kHidden) && hasHidden(labels[0]);
  std::vector<Tensor> outputs(outTypes.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].kind =
        accumulates(kind, static_cast<int>(i)) ? TensorKind::kLoss : TensorKind::kActivation;
    outputs[i].element = elementOf(parsePattern(ruleOf(kind).outputs[i]));
    outputs[i].sequenceRegion = isOfHidden || hasHidden(outLabels[i]);
    for (size_t d = 0; d < outLabels[i].size(); ++d)
      outputs[i].dims.push_back({outLabels[i][d], outTypes[i].dims[d]});
  }
  return outputs;
}

Flops opFlops(const program::SegmentOp& op, const std::vector<OperandType>& operands) {
  const auto elements = [&](int32_t operand) {
    return static_cast<double>(operands[operand].elements());
  };
  const auto tokens = [&](int32_t operand) {  // s * b of an operand [s,b,...]
    return static_cast<double>(operands[operand].dims[0] * operands[operand].dims[1]);
  };
  switch (op.kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:  // Every weight meets every token.
      return Flops(2 * tokens(op.inputs[0]) * elements(op.inputs[1]));
    case OpKind::kMatmulGradWeight:
      return Flops(2 * tokens(op.inputs[0]) * elements(op.outputs[0]));
    case OpKind::kAttention: {  // q k^T and p v: 2 products of s * s * (width of the context)
      const int32_t context = op.outputs[0];
      return Flops(2 * 2 * elements(context) * static_cast<double>(operands[context].dims[0]));
    }
    case OpKind::kAttentionGrad: {  // dv, dp, dq, dk; the recomputed q k^T is no model work
      const int32_t context = op.inputs[1];
      return Flops(4 * 2 * elements(context) * static_cast<double>(operands[context].dims[0]));
    }
    default:
      return Flops(0);
  }
}

Bytes opBytes(const program::SegmentOp& op, const std::vector<OperandType>& operands) {
  const auto touched = [&](int32_t operand) {
    return Bytes(static_cast<double>(touchedElements(op, operands, operand) *
                                     byteSize(operands[operand].dtype)));
  };
  Bytes total;
  for (size_t i = 0; i < op.inputs.size(); ++i)  // An operand that is read twice is read once.
    if (std::find(op.inputs.begin(), op.inputs.begin() + static_cast<long>(i), op.inputs[i]) ==
        op.inputs.begin() + static_cast<long>(i))
      total += touched(op.inputs[i]);
  for (size_t i = 0; i < op.outputs.size(); ++i)
    total += touched(op.outputs[i]) * (accumulates(op.kind, static_cast<int>(i)) ? 2 : 1);
  return total;
}

bool isElementwise(OpKind kind) {
  switch (kind) {
    case OpKind::kAddPosition:  // The smaller operand is the same for every batch element,
    case OpKind::kBiasAdd:      // for every token,
    case OpKind::kLossGrad:     // for every column of a token.
    case OpKind::kDropout:
    case OpKind::kGelu:
    case OpKind::kAdd:
    case OpKind::kGeluGrad:
      return true;
    default:
      return false;
  }
}

bool isGenerated(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
    case OpKind::kMatmul:
    case OpKind::kAttention:
    case OpKind::kLossMax:
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
    case OpKind::kTokenLoss:
    case OpKind::kEmbeddingGrad:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
    case OpKind::kAttentionGrad:
    case OpKind::kLossGrad:
      return false;
    default:
      return true;
  }
}

bool accumulates(OpKind kind, int output) {
  const auto& outputs = ruleOf(kind).outputs;
  return output >= 0 && output < static_cast<int>(outputs.size()) &&
         outputs[static_cast<size_t>(output)].starts_with('+');
}

bool isForward(OpKind kind) { return kind <= OpKind::kTokenLoss; }

bool isSelectivelyRecomputed(OpKind kind) { return kind == OpKind::kAttention; }

bool mustBeWhole(OpKind kind, Label label) { return (ruleOf(kind).whole & bit(label)) != 0; }

}  // namespace trireme::graph
