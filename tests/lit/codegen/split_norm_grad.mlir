// RUN: trireme-opt %s --trireme-split-norm-grad | FileCheck %s

// CHECK-LABEL: func @rms
// CHECK: %[[DG:.*]] = trireme.rms_norm_grad_weight %arg0, %arg2, %arg3, %arg4 {trireme.places = array<i32: 6>}
// CHECK: %[[DX:.*]] = trireme.rms_norm_grad_input %arg0, %arg1, %arg2, %arg3 {trireme.places = array<i32: 5>}
// CHECK: return %[[DX]], %[[DG]]
func.func @rms(%x: tensor<4x2x8xf32>, %gamma: tensor<8xf32>, %rstd: tensor<4x2xf32>, %dy: tensor<4x2x8xf32>,
               %old: tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<8xf32>) {
  %dx, %dg = trireme.rms_norm_grad %x, %gamma, %rstd, %dy, %old {trireme.places = array<i32: 5, 6>}
      : (tensor<4x2x8xf32>, tensor<8xf32>, tensor<4x2xf32>, tensor<4x2x8xf32>, tensor<8xf32>)
      -> (tensor<4x2x8xf32>, tensor<8xf32>)
  return %dx, %dg : tensor<4x2x8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func @layer
// CHECK: trireme.layer_norm_grad_weight
// CHECK-SAME: -> (tensor<8xf32>, tensor<8xf32>)
// CHECK: trireme.layer_norm_grad_input
// CHECK-NOT: trireme.layer_norm_grad{{ }}
func.func @layer(%x: tensor<4x2x8xf32>, %gamma: tensor<8xf32>, %mean: tensor<4x2xf32>, %rstd: tensor<4x2xf32>,
                 %dy: tensor<4x2x8xf32>, %a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<4x2x8xf32> {
  %dx, %dg, %db = trireme.layer_norm_grad %x, %gamma, %mean, %rstd, %dy, %a, %b
      : (tensor<4x2x8xf32>, tensor<8xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2x8xf32>, tensor<8xf32>,
         tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %dx : tensor<4x2x8xf32>
}
