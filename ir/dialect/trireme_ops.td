// The dialect: one op per program::OpKind, on the local tensors of one segment or on the logical ones
// of a model (trireme_model_ops.td). What each op computes is said once, in ir/program/op.h; its
// shapes once, in ir/graph/semantics.h, which the verifier calls.
#ifndef TRIREME_OPS_TD
#define TRIREME_OPS_TD

include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Trireme_Dialect : Dialect {
  let name = "trireme";
  let cppNamespace = "::trireme::dialect";
  let summary = "Ops of transformer training on placed tensors";
  let description = [{
    Ops have value semantics. An op whose result accumulates ("+=") takes the old value as its last
    operands and returns the new one.

    Where a value lives is said by attributes that any op or function argument may carry:
    - `trireme.places = array<i32: 4, 5>`: the segment operands that the results are written to;
    - `trireme.place = 4 : i32`: the segment operand that the argument is read from.
    Functions that codegen outlines are marked `trireme.kernel`.

    In a model, the dims of a tensor carry labels, `tensor<8x2x4xf32, #trireme.dims<sequence, batch,
    hidden>>`, and a tensor is called as its SSA name, unless `trireme.names = ["..."]` of its op says
    otherwise.

    - (D1) operands and results have the types, and the labels, that the op's semantics infer;
    - (D2) an accumulating result has the type of its old value;
    - (D3) `trireme.places` has one entry per result, each at least 0;
    - (D4) `trireme.names` has one name per result.
  }];
  let hasOperationAttrVerify = 1;
  let hasConstantMaterializer = 0;
  let useDefaultAttributePrinterParser = 1;
}

// The value is part of every random key: the numbers are those of ::trireme::RngStream.
def Trireme_StreamEnum : I32EnumAttr<"StreamName", "what a random number is for", [
    I32EnumAttrCase<"init", 1>, I32EnumAttrCase<"embedding_dropout", 2>,
    I32EnumAttrCase<"attention_dropout", 3>, I32EnumAttrCase<"attention_out_dropout", 4>,
    I32EnumAttrCase<"mlp_out_dropout", 5>, I32EnumAttrCase<"data_shuffle", 6>]> {
  let cppNamespace = "::trireme::dialect";
  let genSpecializedAttr = 0;
}
def Trireme_StreamAttr : EnumAttr<Trireme_Dialect, Trireme_StreamEnum, "stream"> {
  let assemblyFormat = "`<` $value `>`";
}

// The numbers are those of ::trireme::RopeScalingKind.
def Trireme_RopeScalingEnum : I32EnumAttr<"RopeScalingName", "how rotary positions are scaled", [
    I32EnumAttrCase<"linear", 1>, I32EnumAttrCase<"llama3", 2>]> {
  let cppNamespace = "::trireme::dialect";
  let genSpecializedAttr = 0;
}
def Trireme_RopeScalingAttr : AttrDef<Trireme_Dialect, "RopeScaling"> {
  let mnemonic = "rope_scaling";
  let summary = "How the frequencies of rotary positions are scaled (ir/base/rope.h)";
  let description = [{
    Numbers are f64; those that a kind does not use are left out.

    #trireme.rope_scaling<kind = linear, factor = 2.0>
    #trireme.rope_scaling<kind = llama3, factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
                          original_max_position_embeddings = 8192>
  }];
  let parameters = (ins EnumParameter<Trireme_RopeScalingEnum>:$kind, "::mlir::FloatAttr":$factor,
                        OptionalParameter<"::mlir::FloatAttr">:$low_freq_factor,
                        OptionalParameter<"::mlir::FloatAttr">:$high_freq_factor,
                        DefaultValuedParameter<"int64_t", "0">:$original_max_position_embeddings);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Trireme_Tensor : StaticShapeTensorOf<[F64, F32, F16, BF16, I32]>;

def Trireme_ComputeOp : NativeOpTrait<"ComputeOp"> {
  let cppNamespace = "::trireme::dialect";
}

// operands attr-dict `:` functional-type(operands, results), and `trireme.names` from the results.
class Trireme_Op<string mnemonic>
    : Op<Trireme_Dialect, mnemonic,
         [Pure, Trireme_ComputeOp, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let hasCustomAssemblyFormat = 1;
  let extraClassDefinition = [{
    ::mlir::ParseResult $cppClass::parse(::mlir::OpAsmParser& parser,
                                         ::mlir::OperationState& result) {
      return ::trireme::dialect::parseComputeOp(parser, result);
    }
    void $cppClass::print(::mlir::OpAsmPrinter& printer) {
      ::trireme::dialect::printComputeOp(printer, *this);
    }
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      ::trireme::dialect::nameResults(*this, setName);
    }
  }];
}

// Attribute groups.
defvar sharded = (ins UnitAttr:$sequence_sharded);
defvar dropping = (ins F64Attr:$probability, Trireme_StreamAttr:$stream);
defvar heads = (ins I64Attr:$head_size, I64Attr:$heads_per_group);
defvar rotary =
    !con(heads, (ins F64Attr:$rope_theta, OptionalAttr<Trireme_RopeScalingAttr>:$rope_scaling), sharded);
defvar vocabulary = (ins I64Attr:$logical_vocab, UnitAttr:$width_sharded);
defvar product = (ins UnitAttr:$tf32);
defvar attention = !con(heads, dropping, (ins UnitAttr:$width_sharded));

class Trireme_MapOp<string mnemonic, dag inputs, dag attributes = (ins)> : Trireme_Op<mnemonic> {
  let arguments = !con(inputs, attributes);
  let results = (outs Trireme_Tensor:$result);
}

defvar T = Trireme_Tensor;

// Forward.
def EmbeddingOp
    : Trireme_MapOp<"embedding", (ins T:$ids, T:$table), (ins UnitAttr:$width_sharded)> {
  let summary = "Rows of the table";
}
def AddPositionOp : Trireme_MapOp<"add_position", (ins T:$x, T:$position), sharded> {
  let summary = "Adds the row of the token's global position";
}
def DropoutOp : Trireme_MapOp<"dropout", (ins T:$x), !con(dropping, sharded)> {
  let summary = "x / (1 - p) where kept, else 0";
}
def LayerNormOp : Trireme_Op<"layer_norm"> {
  let summary = "(x - mean) rstd gamma + beta, with mean and rstd";
  let arguments = (ins T:$x, T:$gamma, T:$beta, F64Attr:$epsilon);
  let results = (outs T:$y, T:$mean, T:$rstd);
}
def RmsNormOp : Trireme_Op<"rms_norm"> {
  let summary = "x rstd gamma, with rstd";
  let arguments = (ins T:$x, T:$gamma, F64Attr:$epsilon);
  let results = (outs T:$y, T:$rstd);
}
def MatmulOp : Trireme_MapOp<"matmul", (ins T:$x, T:$w), product> { let summary = "x w^T"; }
def BiasAddOp : Trireme_MapOp<"bias_add", (ins T:$x, T:$bias)> { let summary = "x + bias"; }
def GeluOp : Trireme_MapOp<"gelu", (ins T:$u)> { let summary = "GELU, tanh form"; }
def SwiGluOp : Trireme_MapOp<"swiglu", (ins T:$u)> { let summary = "silu(gate) up"; }
def RotaryOp : Trireme_MapOp<"rotary", (ins T:$qkv), rotary> {
  let summary = "Rotates queries and keys by position";
}
def AttentionOp : Trireme_Op<"attention"> {
  let summary = "Causal attention, with the log-sum-exp of each query";
  let arguments = !con((ins T:$qkv), attention);
  let results = (outs T:$ctx, T:$lse);
}
def AddOp : Trireme_MapOp<"add", (ins T:$x, T:$y)> { let summary = "x + y"; }
def LossMaxOp : Trireme_MapOp<"loss_max", (ins T:$logits), vocabulary> {
  let summary = "Maximum over the local logical columns";
}
def LossTargetOp : Trireme_MapOp<"loss_target", (ins T:$logits, T:$max, T:$labels), vocabulary> {
  let summary = "Logit of the label minus the maximum if the label is local, else 0";
}
def LossSumExpOp : Trireme_MapOp<"loss_sum_exp", (ins T:$logits, T:$max), vocabulary> {
  let summary = "Sum of exp(logit - max) over the local logical columns";
}
def TokenLossOp : Trireme_MapOp<"token_loss", (ins T:$target, T:$sum_exp, T:$old)> {
  let summary = "+= sum of log(sum_exp) - target";
}

// Backward.
def EmbeddingGradOp : Trireme_MapOp<"embedding_grad", (ins T:$ids, T:$dy, T:$old),
                                    (ins UnitAttr:$width_sharded)> {
  let summary = "+= rows of dy at their ids";
}
def PositionGradOp : Trireme_MapOp<"position_grad", (ins T:$dy, T:$old), sharded> {
  let summary = "+= dy summed over the batch at its global position";
}
def LayerNormGradOp : Trireme_Op<"layer_norm_grad"> {
  let summary = "dx; dgamma and dbeta accumulate";
  let arguments = (ins T:$x, T:$gamma, T:$mean, T:$rstd, T:$dy, T:$old_dgamma, T:$old_dbeta);
  let results = (outs T:$dx, T:$dgamma, T:$dbeta);
}
def RmsNormGradOp : Trireme_Op<"rms_norm_grad"> {
  let summary = "dx; dgamma accumulates";
  let arguments = (ins T:$x, T:$gamma, T:$rstd, T:$dy, T:$old_dgamma);
  let results = (outs T:$dx, T:$dgamma);
}
def MatmulGradInputOp : Trireme_MapOp<"matmul_grad_input", (ins T:$dy, T:$w), product> {
  let summary = "dy w";
}
def MatmulGradWeightOp
    : Trireme_MapOp<"matmul_grad_weight", (ins T:$dy, T:$x, T:$old), product> {
  let summary = "+= dy^T x";
}
def BiasGradOp : Trireme_MapOp<"bias_grad", (ins T:$dy, T:$old)> {
  let summary = "+= dy summed over the tokens";
}
def GeluGradOp : Trireme_MapOp<"gelu_grad", (ins T:$u, T:$dz)> {
  let summary = "dz times the derivative of GELU at u";
}
def SwiGluGradOp : Trireme_MapOp<"swiglu_grad", (ins T:$u, T:$dz)> {
  let summary = "Gradients of gate and up";
}
def RotaryGradOp : Trireme_MapOp<"rotary_grad", (ins T:$dy), rotary> {
  let summary = "The inverse rotation";
}
def AttentionGradOp : Trireme_MapOp<"attention_grad",
                                    (ins T:$qkv, T:$ctx, T:$lse, T:$dctx), attention> {
  let summary = "Gradient of queries, keys and values";
}
def LossGradOp : Trireme_MapOp<"loss_grad", (ins T:$logits, T:$max, T:$sum_exp, T:$labels),
                               !con(vocabulary, (ins F64Attr:$scale))> {
  let summary = "(softmax - onehot) scale; padded columns get 0";
}

// The two halves of the norm gradients, which iterate differently: over tokens and over columns.
// codegen splits the ops above into these; they are no OpKind.
class Trireme_SplitOp<string mnemonic, list<Trait> traits>
    : Op<Trireme_Dialect, mnemonic, !listconcat([Pure], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def LayerNormGradInputOp
    : Trireme_SplitOp<"layer_norm_grad_input",
                      [AllTypesMatch<["x", "dy", "dx"]>, AllTypesMatch<["mean", "rstd"]>]> {
  let summary = "dx of layer_norm_grad";
  let arguments = (ins T:$x, T:$gamma, T:$mean, T:$rstd, T:$dy);
  let results = (outs T:$dx);
}
def LayerNormGradWeightOp
    : Trireme_SplitOp<"layer_norm_grad_weight",
                      [AllTypesMatch<["x", "dy"]>, AllTypesMatch<["mean", "rstd"]>,
                       AllTypesMatch<["old_dgamma", "old_dbeta", "dgamma", "dbeta"]>]> {
  let summary = "dgamma and dbeta of layer_norm_grad, which accumulate";
  let arguments = (ins T:$x, T:$mean, T:$rstd, T:$dy, T:$old_dgamma, T:$old_dbeta);
  let results = (outs T:$dgamma, T:$dbeta);
}
def RmsNormGradInputOp
    : Trireme_SplitOp<"rms_norm_grad_input", [AllTypesMatch<["x", "dy", "dx"]>]> {
  let summary = "dx of rms_norm_grad";
  let arguments = (ins T:$x, T:$gamma, T:$rstd, T:$dy);
  let results = (outs T:$dx);
}
def RmsNormGradWeightOp
    : Trireme_SplitOp<"rms_norm_grad_weight",
                      [AllTypesMatch<["x", "dy"]>, AllTypesMatch<["old_dgamma", "dgamma"]>]> {
  let summary = "dgamma of rms_norm_grad, which accumulates";
  let arguments = (ins T:$x, T:$rstd, T:$dy, T:$old_dgamma);
  let results = (outs T:$dgamma);
}

include "ir/dialect/trireme_model_ops.td"

#endif
