// The model graph as text: blocks of forward ops and the body that repeats them. Its backward is
// derived (ir/graph) and not written. Included by trireme_ops.td.
#ifndef TRIREME_MODEL_OPS_TD
#define TRIREME_MODEL_OPS_TD

include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/TensorEncoding.td"

def Trireme_DimsAttr
    : AttrDef<Trireme_Dialect, "Dims", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "dims";
  let summary = "What the dims of a tensor are; says how it can be sharded";
  let parameters = (ins ArrayRefParameter<"::trireme::graph::Label">:$labels);
  let hasCustomAssemblyFormat = 1;
}

// The numbers are those of ::trireme::program::InitKind.
def Trireme_InitEnum : I32EnumAttr<"InitName", "how a parameter starts", [
    I32EnumAttrCase<"zeros", 0>, I32EnumAttrCase<"ones", 1>, I32EnumAttrCase<"normal", 2>]> {
  let cppNamespace = "::trireme::dialect";
}

def ModelOp : Op<Trireme_Dialect, "model", [
    IsolatedFromAbove, SymbolTable, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "One microbatch of a model: tokens, labels and the old loss -> the new loss";
  let description = [{
    Blocks, and then the body that calls them. `batch` is the samples of a step, over whose tokens the
    loss is a mean.

    trireme.model "gpt" batch 32 (%batch.tokens: ..., %batch.labels: ..., %batch.old_loss: ...) {
      trireme.block @embedding(%tokens: ...) { ... }
      trireme.block @layer(%input: ...) { ... }
      trireme.block @head(%input: ..., %labels: ..., %old_loss: ...) { ... }
      %embedding = trireme.call @embedding(%batch.tokens) : ...
      %layer = trireme.repeat 12 times @layer(%embedding) : ...
      %head = trireme.call @head(%layer, %batch.labels, %batch.old_loss) : ...
      trireme.yield %head : ...
    }

    - (M1) calls name a block of the model;
    - (M2) operands and result of a call have the types of the block's arguments and result;
    - (M3) a block that is repeated makes what it takes;
    - (M4) a block takes tokens; or the residual stream; or that, labels and the old loss, to which it
      adds. It consists of parameters and forward ops;
    - (M5) all tensors have the types of one precision;
    - (M6) the body is as above: no other blocks, calls or values.

    The rules (G1) to (G7) of the graph are in ir/graph/verify.h.
  }];
  let arguments = (ins StrAttr:$name, I64Attr:$batch);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name `batch` $batch attr-dict-with-keyword custom<Body>($body)";
  let hasRegionVerifier = 1;
}

def BlockOp : Op<Trireme_Dialect, "block", [
    HasParent<"ModelOp">, IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "The forward of one block";
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword `` custom<Body>($body)";
  let hasRegionVerifier = 1;
}

def ParameterOp : Op<Trireme_Dialect, "parameter", [
    HasParent<"BlockOp">, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "A parameter of the block: one per layer if the block is repeated";
  let description = [{
    `name` is the one in checkpoints, `{}` in it the logical layer. `decay`: weight decay applies.
    `tied`: the table that embedding and head share. `logical`: the sizes without padding.

    %attn.qkv.weight = trireme.parameter "layers.{}.attn.qkv.weight" normal(0.02) decay : tensor<...>
  }];
  let arguments = (ins StrAttr:$name, Trireme_InitEnum:$init, OptionalAttr<F64Attr>:$std,
                   UnitAttr:$decay, UnitAttr:$tied, OptionalAttr<DenseI64ArrayAttr>:$logical);
  let results = (outs Trireme_Tensor:$result);
  let assemblyFormat = [{
    $name $init (`(` $std^ `)`)? (`decay` $decay^)? (`tied` $tied^)? (`logical` $logical^)?
    `` custom<Names>(attr-dict) `:` type($result)
  }];
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      ::trireme::dialect::nameResults(*this, setName);
    }
  }];
}

class Trireme_CallOp<string mnemonic, list<Trait> traits = []>
    : Op<Trireme_Dialect, mnemonic, !listconcat([
          HasParent<"ModelOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
          DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  let results = (outs Trireme_Tensor:$result);
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::verifySymbolUses(::mlir::SymbolTableCollection& symbols) {
      return ::trireme::dialect::verifyCall(*this, getCalleeAttr(), symbols);
    }
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName(getResult(), getCallee());
    }
  }];
}
def CallOp : Trireme_CallOp<"call"> {
  let summary = "The result of a block";
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<Trireme_Tensor>:$inputs);
  let assemblyFormat = [{
    $callee `(` $inputs `)` attr-dict `:` functional-type($inputs, $result)
  }];
}
def RepeatOp : Trireme_CallOp<"repeat", [AllTypesMatch<["input", "result"]>]> {
  let summary = "A block on its own result, `count` times; each time with parameters of its own";
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$count, FlatSymbolRefAttr:$callee,
                   Trireme_Tensor:$input);
  let assemblyFormat = "$count `times` $callee `(` $input `)` attr-dict `:` type($result)";
}

def YieldOp : Op<Trireme_Dialect, "yield", [
    Terminator, Pure, ParentOneOf<["BlockOp", "ModelOp"]>]> {
  let summary = "The result of a block or model";
  let arguments = (ins Trireme_Tensor:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

#endif
