// RUN: trireme-opt %s --trireme-lower-kernels --split-input-file --verify-diagnostics | FileCheck %s

// 37 columns are one whole vector and a masked one. A vector is two lines, fetched a page ahead.
// CHECK-LABEL: func @gelu
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK-SAME: trireme.extent = 10 : i64
// CHECK: scf.for {{.*}} = %[[BEGIN]] to %[[END]]
// CHECK-COUNT-2: llvm.intr.prefetch
// CHECK-NOT: llvm.intr.prefetch
// CHECK: llvm.load {{.*}} -> vector<32xf32>
// CHECK: llvm.store {{.*}} vector<32xf32>
// CHECK: llvm.intr.masked.load
// CHECK: llvm.intr.masked.store
func.func @gelu(%u: tensor<5x2x37xf32>) -> tensor<5x2x37xf32> attributes {trireme.kernel} {
  %z = trireme.gelu %u : (tensor<5x2x37xf32>) -> tensor<5x2x37xf32>
  return %z : tensor<5x2x37xf32>
}

// -----

// The sum is in f64, over blocks of 32 columns.
// CHECK-LABEL: func @bias_grad
// CHECK-SAME: trireme.extent = 2 : i64
// CHECK: arith.extf {{.*}} : vector<32xf32> to vector<32xf64>
func.func @bias_grad(%dy: tensor<5x2x64xf32>, %old: tensor<64xf32>) -> tensor<64xf32> attributes {trireme.kernel} {
  %db = trireme.bias_grad %dy, %old : (tensor<5x2x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %db : tensor<64xf32>
}

// -----

func.func @c1_two_types(%x: tensor<4x2x8xf32>, %z: tensor<4x2x8xf64>) -> (tensor<4x2x8xf32>, tensor<4x2x8xf64>)
    attributes {trireme.kernel} {
  %0 = trireme.gelu %x : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  // expected-error @+1 {{(C1) computes on 'f64' in a kernel of another type}}
  %1 = trireme.gelu %z : (tensor<4x2x8xf64>) -> tensor<4x2x8xf64>
  return %0, %1 : tensor<4x2x8xf32>, tensor<4x2x8xf64>
}

// -----

func.func @c2_library_op(%x: tensor<4x2x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x2x8xf32> attributes {trireme.kernel} {
  // expected-error @+1 {{(C2) is not generated in this kernel}}
  %0 = trireme.matmul %x, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  return %0 : tensor<4x2x8xf32>
}
