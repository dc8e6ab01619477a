// RUN: trireme-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func @round_trip
// CHECK: trireme.dropout %{{.*}} {probability = 1.000000e-01 : f64, sequence_sharded, stream = #trireme.stream<mlp_out_dropout>}
// CHECK: trireme.bias_grad
func.func @round_trip(%x: tensor<4x2x8xf32>, %old: tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<8xf32>) {
  %y = trireme.dropout %x {probability = 0.1 : f64, stream = #trireme.stream<mlp_out_dropout>, sequence_sharded}
      : (tensor<4x2x8xf32>) -> tensor<4x2x8xf32>
  %db = trireme.bias_grad %y, %old {trireme.places = array<i32: 3>}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %y, %db : tensor<4x2x8xf32>, tensor<8xf32>
}

// -----

// CHECK-LABEL: func @rotary_of_scaled_positions
// CHECK: rope_scaling = #trireme.rope_scaling<kind = linear, factor = 2.000000e+00 : f64>
// CHECK: rope_scaling = #trireme.rope_scaling<kind = llama3, factor = 8.000000e+00 : f64, low_freq_factor = 1.000000e+00 : f64, high_freq_factor = 4.000000e+00 : f64, original_max_position_embeddings = 8192>
func.func @rotary_of_scaled_positions(%x: tensor<4x2x2x12xf32>) -> tensor<4x2x2x12xf32> {
  %y = trireme.rotary %x {head_size = 4 : i64, heads_per_group = 1 : i64, rope_theta = 1.0e4 : f64,
      rope_scaling = #trireme.rope_scaling<kind = linear, factor = 2.0>}
      : (tensor<4x2x2x12xf32>) -> tensor<4x2x2x12xf32>
  %z = trireme.rotary_grad %y {head_size = 4 : i64, heads_per_group = 1 : i64, rope_theta = 1.0e4 : f64,
      rope_scaling = #trireme.rope_scaling<kind = llama3, factor = 8.0, low_freq_factor = 1.0,
                                           high_freq_factor = 4.0, original_max_position_embeddings = 8192>}
      : (tensor<4x2x2x12xf32>) -> tensor<4x2x2x12xf32>
  return %z : tensor<4x2x2x12xf32>
}

// -----

func.func @rope_scaling_that_makes_no_sense(%x: tensor<4x2x2x12xf32>) {
  // expected-error @+2 {{high_freq_factor must be above low_freq_factor (4), got 1}}
  %y = trireme.rotary %x {head_size = 4 : i64, heads_per_group = 1 : i64, rope_theta = 1.0e4 : f64,
      rope_scaling = #trireme.rope_scaling<kind = llama3, factor = 8.0, low_freq_factor = 4.0, high_freq_factor = 1.0, original_max_position_embeddings = 8192>}
      : (tensor<4x2x2x12xf32>) -> tensor<4x2x2x12xf32>
  return
}

// -----

func.func @rope_scaling_in_f32(%x: tensor<4x2x2x12xf32>) {
  // expected-error @+2 {{factors must be f64}}
  %y = trireme.rotary %x {head_size = 4 : i64, heads_per_group = 1 : i64, rope_theta = 1.0e4 : f64,
      rope_scaling = #trireme.rope_scaling<kind = linear, factor = 2.0 : f32>}
      : (tensor<4x2x2x12xf32>) -> tensor<4x2x2x12xf32>
  return
}

// -----

func.func @d1_bias_of_another_width(%x: tensor<4x2x8xf32>, %bias: tensor<7xf32>) {
  // expected-error @+1 {{(D1) bias_add: input 1 is f32[7]}}
  %y = trireme.bias_add %x, %bias : (tensor<4x2x8xf32>, tensor<7xf32>) -> tensor<4x2x8xf32>
  return
}

// -----

func.func @d1_result_of_another_type(%x: tensor<4x2x8xf32>) {
  // expected-error @+1 {{(D1) result 0 must be 'tensor<4x2x8xf32>'}}
  %y = trireme.gelu %x : (tensor<4x2x8xf32>) -> tensor<4x2x8xf64>
  return
}

// -----

func.func @d2_old_value_of_another_type(%dy: tensor<4x2x8xbf16>, %old: tensor<8xbf16>) {
  // expected-error @+1 {{(D2) the old value of result 0 must be 'tensor<8xf32>'}}
  %db = trireme.bias_grad %dy, %old : (tensor<4x2x8xbf16>, tensor<8xbf16>) -> tensor<8xf32>
  return
}

// -----

func.func @d3_one_place_for_two_results(%x: tensor<4x2x8xf32>, %gamma: tensor<8xf32>) {
  // expected-error @+1 {{(D3) trireme.places must have one entry per result}}
  %y, %rstd = trireme.rms_norm %x, %gamma {epsilon = 1.0e-5 : f64, trireme.places = array<i32: 3>}
      : (tensor<4x2x8xf32>, tensor<8xf32>) -> (tensor<4x2x8xf32>, tensor<4x2xf32>)
  return
}
