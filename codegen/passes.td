// The passes of codegen, in the order of the pipeline.
#ifndef TRIREME_CODEGEN_PASSES_TD
#define TRIREME_CODEGEN_PASSES_TD

include "mlir/Pass/PassBase.td"

def SplitNormGradPass : Pass<"trireme-split-norm-grad", "::mlir::func::FuncOp"> {
  let summary = "Split the gradient of a norm by what it iterates over";
  let description = [{
    dx is computed token by token, dgamma and dbeta column by column over all tokens: no one loop
    can be split over threads for both. The part for the weights comes first, because dx may be
    followed by an op that overwrites dy.

    %dx, %dg = trireme.rms_norm_grad %x, %gamma, %rstd, %dy, %old
        {trireme.places = array<i32: 5, 6>}
    becomes
    %dg = trireme.rms_norm_grad_weight %x, %rstd, %dy, %old {trireme.places = array<i32: 6>}
    %dx = trireme.rms_norm_grad_input %x, %gamma, %rstd, %dy {trireme.places = array<i32: 5>}
  }];
  let dependentDialects = ["::trireme::dialect::TriremeDialect"];
}

def FusePass : Pass<"trireme-fuse", "::mlir::ModuleOp"> {
  let summary = "Outline the ops between library calls into kernels, fusing neighbours";
  let description = [{
    Every op that the runtime has no library kernel for is moved into a function marked
    `trireme.kernel`, together with the following ops that can share its loop over tokens. Equal
    kernels become one function.

    %1 = trireme.bias_add %0, %bias {trireme.places = array<i32: 3>}
    %2 = trireme.dropout %1 {...}
    %3 = trireme.add %2, %x {trireme.places = array<i32: 5>}
    becomes
    %3 = call @bias_add_dropout_add_0(%0, %bias, %x) {trireme.places = array<i32: 5>}

    A value that is read outside of the kernel, or again after a norm's reduction inside of it, is
    a result of the kernel and stored at its place; others stay in registers.

    An op joins the kernel only if:
    - (C1) no library op stands between it and the kernel;
    - (C2) it has the same tokens, and its columns line up with the kernel's;
    - (C3) it reads a value that the kernel reads or makes;
    - (C4) the kernel then has at most one op that needs whole rows (a norm) or pairs of columns
           (swiglu, rotary);
    - (C5) it can move up to the kernel: it needs nothing from the ops that it passes, and none of
           them reads a value that this op is the last to read, because an op may write over such a
           value, or touches the place of its result.

    With `epilogues` ops stay library calls that a library of matrix products does together with the
    product before them, and that would be a kernel of their own:
    - (C6) a kernel of bias_add, of bias_add and gelu, or of gelu_grad, in bf16 or f32, that alone
           reads the result of a matmul (gelu_grad: of a matmul_grad_input).
    A bias that joins a kernel with other ops, such as dropout and a norm, costs nothing there.
  }];
  let options = [Option<"fuse", "fuse", "bool", "true", "false: one kernel per op">,
                 Option<"epilogues", "epilogues", "bool", "false", "leave them to the product">];
  let dependentDialects = ["::mlir::func::FuncDialect", "::trireme::dialect::TriremeDialect"];
}

def LowerKernelsPass : Pass<"trireme-lower-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn kernels into loops with vectors";
  let description = [{
    A kernel on tensors becomes a function with the ABI of program::GeneratedKernel: operands are
    its arguments, then its results. `trireme.extent` and `trireme.grain` say how the runtime may
    split it.

    func.func @gelu_0(%u: tensor<8x2x64xf32>) -> tensor<8x2x64xf32> attributes {trireme.kernel}
    becomes
    func.func @gelu_0(%context: !llvm.ptr, %operands: !llvm.ptr, %begin: i64, %end: i64)
        attributes {trireme.extent = 16 : i64, trireme.grain = 16 : i64}

    With `warps` a thread of a GPU's warp has one lane of each vector: values are scalars, sums over
    lanes are exchanged between threads, and warps take turns with rows. The function then has one
    argument, program::KernelContext followed by the operands' pointers, and `trireme.num_operands`.
    A sum over tokens takes a thread block of `trireme.warps` warps, which share memory:

    llvm.mlir.global internal @bias_grad_0_shared() {addr_space = 3 : i32} : !llvm.array<1024 x f64>

    Refused with an error unless:
    - (C1) the kernel computes on one of f64, f32, bf16 and f16;
    - (C2) every op is one that codegen generates.
  }];
  let options = [Option<"warps", "warps", "bool", "false", "true: for GPUs">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
                           "::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect",
                           "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif
