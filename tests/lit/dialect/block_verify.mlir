// A block per rule that it breaks.
// RUN: trireme-opt %s --split-input-file --verify-diagnostics

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "d1_dims_of_another_kind" batch 6 (%tokens: !ids) {
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : tensor<8xf32, #trireme.dims<ffn>>
    // expected-error @+1 {{(D1) rms_norm: input 1 has the dims [ffn], expected [hidden]}}
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, tensor<8xf32, #trireme.dims<ffn>>) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "d4_one_name_for_two_results" batch 6 (%tokens: !ids) {
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    // expected-error @+1 {{(D4) trireme.names must have one name per result}}
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64, trireme.names = ["y"]} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
// expected-error @+1 {{2 labels for a tensor of 1 dims}}
!h = tensor<8xf32, #trireme.dims<sequence, hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "dims_number_of_labels" batch 6 (%tokens: !ids) {
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
// expected-error @+1 {{'hiden' is no dim; valid: sequence batch hidden group}}
!h = tensor<8xf32, #trireme.dims<hiden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "dims_unknown_label" batch 6 (%tokens: !ids) {
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!h = tensor<8xf32, #trireme.dims<hidden>>
trireme.model "m4_argument_is_no_tensor" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) argument 0 is 'i32', expected a tensor of static shape}}
  trireme.block @layer(%n: i32) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    trireme.yield %gamma : !h
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "m4_two_arguments" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) the block takes 2 tensors, expected 1}}
  trireme.block @layer(%input: !x, %more: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
trireme.model "m4_no_labels" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) tensor<8xf32> has no labels}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : tensor<8xf32>
    trireme.yield %input : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
trireme.model "m4_op_of_the_backward" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) rotary_grad is an op of the backward, which is derived from the forward}}
  trireme.block @layer(%input: !x) {
    %w = trireme.parameter "layers.{}.w" zeros : tensor<2x12x8xf32, #trireme.dims<group, head_width, hidden>>
    %q = trireme.matmul %input, %w : (!x, tensor<2x12x8xf32, #trireme.dims<group, head_width, hidden>>) -> tensor<4x2x2x12xf32, #trireme.dims<sequence, batch, group, head_width>>
    %r = trireme.rotary_grad %q {head_size = 4 : i64, heads_per_group = 1 : i64, rope_theta = 1.0e4 : f64} : (tensor<4x2x2x12xf32, #trireme.dims<sequence, batch, group, head_width>>) -> tensor<4x2x2x12xf32, #trireme.dims<sequence, batch, group, head_width>>
    trireme.yield %input : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "m4_foreign_op" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) 'arith.constant' is in a block, expected parameters and forward ops}}
  trireme.block @layer(%input: !x) {
    %c = arith.constant 1 : i32
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "m4_weight_is_an_activation" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) matmul: input 1 ('y') is an activation, expected a parameter}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %z = trireme.matmul %y, %y : (!x, !x) -> tensor<4x2x4x2xf32, #trireme.dims<sequence, batch, sequence, batch>>
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "m4_unnamed_tensor" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) 'trireme.add' has no trireme.names}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %z = "trireme.add"(%y, %y) : (!x, !x) -> !x
    trireme.yield %z : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m4_old_loss_is_yielded" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M4) the block takes the old loss, so it must yield the new one}}
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %old : !loss
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
trireme.model "m5_type_of_another_precision" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(M5) 'gamma' is tensor<8xbf16, #trireme.dims<hidden>>, expected tensor<8xf32, #trireme.dims<hidden>> at fp32}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : tensor<8xbf16, #trireme.dims<hidden>>
    trireme.yield %input : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g1_probability" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G1) dropout: epsilon 0, probability 1 or}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %z = trireme.dropout %y {probability = 1.0 : f64, stream = #trireme.stream<mlp_out_dropout>} : (!x) -> !x
    trireme.yield %z : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g2_two_parameters_of_one_name" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G2) two parameters are called 'layers.{}.gamma'}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %delta = trireme.parameter "layers.{}.gamma" ones : !h
    %z, %rstd2 = trireme.rms_norm %y, %delta {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %z : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g2_one_name_for_all_layers" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G2) parameter 'gamma' is in a layer, so its name must have one '{}' for the layer}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
trireme.model "g3_logical_shape_of_another_rank" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G3) parameter 'table' has 1 logical dims, expected 2}}
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
trireme.model "g3_logical_size_beyond_the_size" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G3) parameter 'table' has the logical size 17 in dim 0, expected 1 to 16}}
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [17, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g3_deviation_of_ones" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G3) parameter 'layers.{}.gamma' has the standard deviation 0.5, expected none}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones(0.5) : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g4_parameter_is_not_read" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G4) parameter 'beta' is read 0 times, expected once}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %beta = trireme.parameter "layers.{}.beta" zeros : !h
    trireme.yield %y : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
trireme.model "g4_result_is_not_read" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G4) nothing reads 'y'}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %input : !x
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "g5_sum_of_another_maximum" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G5) token_loss must read loss_target and loss_sum_exp}}
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %target {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  trireme.yield %tokens : !ids
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "g5_vocabularies_differ" batch 6 (%tokens: !ids) {
  // expected-error @+1 {{(G5) loss_target: logical vocabulary 9, expected the same in all loss ops, 1 to 16}}
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 9 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  trireme.yield %tokens : !ids
}
