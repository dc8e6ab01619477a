#include "ir/program/op.h"

#include <array>

namespace trireme::program {
namespace {

// In the order of OpKind.
constexpr std::array<std::string_view, kNumOpKinds> kOpNames = {
    "embedding",
    "add_position",
    "dropout",
    "layer_norm",
    "rms_norm",
    "matmul",
    "bias_add",
    "gelu",
    "swiglu",
    "rotary",
    "attention",
    "add",
    "loss_max",
    "loss_target",
    "loss_sum_exp",
    "token_loss",
    "embedding_grad",
    "position_grad",
    "layer_norm_grad",
    "rms_norm_grad",
    "matmul_grad_input",
    "matmul_grad_weight",
    "bias_grad",
    "gelu_grad",
    "swiglu_grad",
    "rotary_grad",
    "attention_grad",
    "loss_grad",
};
static_assert(kOpNames.back() == "loss_grad");

}  // namespace

std::string_view opName(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kOpNames.size() ? kOpNames[index] : "unknown";
}

std::optional<OpKind> parseOpKind(std::string_view name) {
  for (size_t i = 0; i < kOpNames.size(); ++i)
    if (kOpNames[i] == name) return static_cast<OpKind>(i);
  return std::nullopt;
}

int64_t OperandType::elements() const {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

}  // namespace trireme::program
