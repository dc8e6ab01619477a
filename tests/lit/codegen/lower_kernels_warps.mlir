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
// CHECK-NOT: prefetch
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

// Eight sites: four of them at once, whose loads come before their stores.
// CHECK-LABEL: func @add
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} -> f32
// CHECK-COUNT-4: llvm.store {{.*}} : f32
// CHECK-NOT: llvm.{{load|store}}
func.func @add(%x: tensor<5x2x256xf32>, %y: tensor<5x2x256xf32>) -> tensor<5x2x256xf32> attributes {trireme.kernel} {
  %z = trireme.add %x, %y : (tensor<5x2x256xf32>, tensor<5x2x256xf32>) -> tensor<5x2x256xf32>
  return %z : tensor<5x2x256xf32>
}

// -----

// Heads of 64: two that rotate and the key, at once, and the value; all loads before the first store.
// CHECK-LABEL: func @rotary
// CHECK: scf.for
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load {{.*}} -> i16
// CHECK-COUNT-8: llvm.store {{.*}} : i16
// CHECK-NOT: llvm.{{load|store}} {{.*}}i16
func.func @rotary(%x: tensor<5x2x1x256xbf16>) -> tensor<5x2x1x256xbf16> attributes {trireme.kernel} {
  %z = trireme.rotary %x {head_size = 64 : i64, heads_per_group = 2 : i64, rope_theta = 1.0e4 : f64} : (tensor<5x2x1x256xbf16>) -> tensor<5x2x1x256xbf16>
  return %z : tensor<5x2x1x256xbf16>
}

// -----

// A sum over 37 tokens, five ranges of 8: a block of 8 columns and of two warps, of four ranges at
// once, which meet in shared memory. The first warp adds the ranges up. 8 rows at once, of which the
// next are loaded before those of a turn are added, and the last 5 alone.
// CHECK: llvm.mlir.global internal @bias_grad_shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<40 x f64>
// CHECK-LABEL: func @bias_grad
// CHECK-SAME: trireme.warps = 2 : i64
// CHECK: scf.for
// CHECK: scf.if
// CHECK-COUNT-8: llvm.load {{.*}} -> f32
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-8: llvm.load {{.*}} -> f32
// CHECK: arith.addf
// CHECK: llvm.store {{.*}} : f64, !llvm.ptr<3>
// CHECK: nvvm.barrier0
// CHECK: scf.if
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f64
// CHECK: nvvm.barrier0
func.func @bias_grad(%dy: tensor<37x1x64xf32>, %old: tensor<64xf32>) -> tensor<64xf32> attributes {trireme.kernel} {
  %db = trireme.bias_grad %dy, %old : (tensor<37x1x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %db : tensor<64xf32>
}
