// RUN: trireme-opt %s --trireme-fuse --split-input-file | FileCheck %s
// RUN: trireme-opt %s --trireme-fuse="fuse=false" --split-input-file | FileCheck %s --check-prefix=APART
// RUN: trireme-opt %s --trireme-fuse="epilogues=true" --split-input-file | FileCheck %s --check-prefix=EPILOGUES

// The residual stream is stored, because it outlives the segment and the norm reads it again; what is
// between the ops is not.
// CHECK-LABEL: func @chain
// CHECK: %[[R:.*]]:3 = call @bias_add_add_rms_norm_0(%arg0, %arg1, %arg2, %arg3) {trireme.places = array<i32: 5, 6, 7>}
// CHECK-NEXT: return %[[R]]#0, %[[R]]#1
// CHECK: func.func @bias_add_add_rms_norm_0
// CHECK-SAME: attributes {trireme.kernel}
// APART-LABEL: func @chain
// APART: call @bias_add_0
// APART: call @add_1
// APART: call @rms_norm_2
func.func @chain(%x: tensor<4x2x8xf32>, %bias: tensor<8xf32>, %residual: tensor<4x2x8xf32>, %gamma: tensor<8xf32>)
    -> (tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<4x2xf32>) {
  %0 = trireme.bias_add %x, %bias {trireme.places = array<i32: 4>}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.add %0, %residual {trireme.places = array<i32: 5>}
      : (tensor<4x2x8xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %y, %rstd = trireme.rms_norm %1, %gamma {epsilon = 1.0e-5 : f64, trireme.places = array<i32: 6, 7>}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>)
  return %1, %y, %rstd : tensor<4x2x8xf32>, tensor<4x2x8xf32>, tensor<4x2xf32>
}

// -----

// CHECK-LABEL: func @equal_kernels_are_one
// CHECK: call @gelu_0
// CHECK: call @gelu_0
// CHECK-NOT: @gelu_1
func.func @equal_kernels_are_one(%x: tensor<4x2x8xf32>, %z: tensor<4x2x8xf32>)
    -> (tensor<4x2x8xf32>, tensor<4x2x8xf32>) {
  %0 = trireme.gelu %x : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.gelu %z : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %0, %1 : tensor<4x2x8xf32>, tensor<4x2x8xf32>
}

// -----

// CHECK-LABEL: func @c1_library_op_between
// CHECK: call @gelu_0
// CHECK: trireme.matmul
// CHECK: call @bias_add_1
func.func @c1_library_op_between(%x: tensor<4x2x8xf32>, %w: tensor<8x8xf32>, %bias: tensor<8xf32>) -> tensor<4x2x8xf32> {
  %0 = trireme.gelu %x : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.matmul %0, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  %2 = trireme.bias_add %1, %bias : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<4x2x8xf32>
  return %2 : tensor<4x2x8xf32>
}

// -----

// The means have other rows than the activations.
// CHECK-LABEL: func @c2_other_tokens
// CHECK: call @layer_norm_0
// CHECK: call @add_1
func.func @c2_other_tokens(%x: tensor<4x2x8xf32>, %gamma: tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>) {
  %y, %mean, %rstd = trireme.layer_norm %x, %gamma, %gamma {epsilon = 1.0e-5 : f64}
      : (tensor<4x2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>, tensor<4x2xf32>)
  %0 = trireme.add %mean, %mean : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %y, %0 : tensor<4x2x8xf32>, tensor<4x2xf32>
}

// -----

// CHECK-LABEL: func @c3_nothing_in_common
// CHECK: call @gelu_0
// CHECK: call @add_1
func.func @c3_nothing_in_common(%x: tensor<4x2x8xf32>, %z: tensor<4x2x8xf32>)
    -> (tensor<4x2x8xf32>, tensor<4x2x8xf32>) {
  %0 = trireme.gelu %x : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.add %z, %z : (tensor<4x2x8xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %0, %1 : tensor<4x2x8xf32>, tensor<4x2x8xf32>
}

// -----

// CHECK-LABEL: func @c4_two_norms
// CHECK: call @rms_norm_0
// CHECK: call @rms_norm_0
func.func @c4_two_norms(%x: tensor<4x2x8xf32>, %gamma: tensor<8xf32>) -> tensor<4x2x8xf32> {
  %y, %r = trireme.rms_norm %x, %gamma {epsilon = 1.0e-5 : f64}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>)
  %z, %q = trireme.rms_norm %y, %gamma {epsilon = 1.0e-5 : f64}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>)
  return %z : tensor<4x2x8xf32>
}

// -----

// gelu is the last to read %0 and may write over it, so it stays behind the sum.
// CHECK-LABEL: func @c5_last_reader
// CHECK: call @add_0
// CHECK: call @bias_grad_1
// CHECK: call @gelu_2
func.func @c5_last_reader(%x: tensor<4x2x8xf32>, %old: tensor<8xf32>) -> (tensor<8xf32>, tensor<4x2x8xf32>) {
  %0 = trireme.add %x, %x : (tensor<4x2x8xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.bias_grad %0, %old : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = trireme.gelu %0 : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %1, %2 : tensor<8xf32>, tensor<4x2x8xf32>
}

// -----

// What would be a kernel of its own after a product is left to it.
// EPILOGUES-LABEL: func @c6_epilogues
// EPILOGUES-NOT: call
// EPILOGUES: return
// CHECK-LABEL: func @c6_epilogues
// CHECK: call @bias_add_gelu_0
// CHECK: call @gelu_grad_1
func.func @c6_epilogues(%x: tensor<4x2x8xf32>, %w: tensor<8x8xf32>, %bias: tensor<8xf32>)
    -> (tensor<4x2x8xf32>, tensor<4x2x8xf32>) {
  %0 = trireme.matmul %x, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.bias_add %0, %bias : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<4x2x8xf32>
  %2 = trireme.gelu %1 : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %3 = trireme.matmul_grad_input %x, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  %4 = trireme.gelu_grad %1, %3 : (tensor<4x2x8xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %2, %4 : tensor<4x2x8xf32>, tensor<4x2x8xf32>
}

// -----

// Elsewhere the bias costs nothing.
// EPILOGUES-LABEL: func @c6_kernel_with_other_ops
// EPILOGUES: call @bias_add_add_0
func.func @c6_kernel_with_other_ops(%x: tensor<4x2x8xf32>, %w: tensor<8x8xf32>, %bias: tensor<8xf32>,
                                    %residual: tensor<4x2x8xf32>) -> tensor<4x2x8xf32> {
  %0 = trireme.matmul %x, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.bias_add %0, %bias : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<4x2x8xf32>
  %2 = trireme.add %1, %residual : (tensor<4x2x8xf32>, tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  return %2 : tensor<4x2x8xf32>
}

// -----

// EPILOGUES-LABEL: func @c6_product_is_read_elsewhere
// EPILOGUES: call @bias_add_0
func.func @c6_product_is_read_elsewhere(%x: tensor<4x2x8xf32>, %w: tensor<8x8xf32>, %bias: tensor<8xf32>)
    -> (tensor<4x2x8xf32>, tensor<4x2x8xf32>) {
  %0 = trireme.matmul %x, %w : (tensor<4x2x8xf32>, tensor<8x8xf32>) -> tensor<4x2x8xf32>
  %1 = trireme.bias_add %0, %bias : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<4x2x8xf32>
  return %0, %1 : tensor<4x2x8xf32>, tensor<4x2x8xf32>
}

// -----

// cuBLASLt has no epilogues in f64.
// EPILOGUES-LABEL: func @c6_f64
// EPILOGUES: call @bias_add_0
func.func @c6_f64(%x: tensor<4x2x8xf64>, %w: tensor<8x8xf64>, %bias: tensor<8xf64>) -> tensor<4x2x8xf64> {
  %0 = trireme.matmul %x, %w : (tensor<4x2x8xf64>, tensor<8x8xf64>) -> tensor<4x2x8xf64>
  %1 = trireme.bias_add %0, %bias : (tensor<4x2x8xf64>, tensor<8xf64>) -> tensor<4x2x8xf64>
  return %1 : tensor<4x2x8xf64>
}
