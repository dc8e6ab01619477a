// RUN: trireme-opt %s --trireme-lower-kernels=warps --split-input-file | FileCheck %s

// One argument; warps take turns with rows, and a thread has one column of 32.
// CHECK-LABEL: func @gelu
// CHECK-SAME: (%{{.*}}: !llvm.ptr) attributes
// CHECK-SAME: trireme.extent = 10 : i64
// CHECK-SAME: trireme.num_operands = 2 : i64
// CHECK-SAME: trireme.warps = 1 : i64
// CHECK: nvvm.read.ptx.sreg.ntid.x
// CHECK: nvvm.read.ptx.sreg.ctaid.x
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> f32
// CHECK-NOT: vector<
func.func @gelu(%u: tensor<5x2x37xf32>) -> tensor<5x2x37xf32> attributes {trireme.kernel} {
  %z = trireme.gelu %u : (tensor<5x2x37xf32>) -> tensor<5x2x37xf32>
  return %z : tensor<5x2x37xf32>
}

// -----

// A sum over a row: five exchanges of two words each.
// CHECK-LABEL: func @rms_norm
// CHECK-COUNT-10: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl
func.func @rms_norm(%x: tensor<5x2x64xf32>, %gamma: tensor<64xf32>) -> (tensor<5x2x64xf32>, tensor<5x2xf32>) attributes {trireme.kernel} {
  %y, %rstd = trireme.rms_norm %x, %gamma {epsilon = 1.0e-5 : f64} : (tensor<5x2x64xf32>, tensor<64xf32>) -> (tensor<5x2x64xf32>, tensor<5x2xf32>)
  return %y, %rstd : tensor<5x2x64xf32>, tensor<5x2xf32>
}

// -----

// A sum over 37 tokens, five ranges of 8: a block of five warps, which meet in shared memory. The
// first warp adds the ranges up. 8 rows at once, and the last 5 alone.
// CHECK: llvm.mlir.global internal @bias_grad_shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<160 x f64>
// CHECK-LABEL: func @bias_grad
// CHECK-SAME: trireme.warps = 5 : i64
// CHECK: scf.for
// CHECK: scf.for
// CHECK: llvm.store {{.*}} : f64, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: scf.if
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f64
// CHECK: nvvm.barrier0
func.func @bias_grad(%dy: tensor<37x1x64xf32>, %old: tensor<64xf32>) -> tensor<64xf32> attributes {trireme.kernel} {
  %db = trireme.bias_grad %dy, %old : (tensor<37x1x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %db : tensor<64xf32>
}
