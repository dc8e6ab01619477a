// A valid model, and a change of it per rule that a model has to obey.
// RUN: trireme-opt %s --split-input-file --verify-diagnostics

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "valid" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "redefined_block" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  // expected-note @+1 {{see existing symbol definition here}}
  trireme.block @layer(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  // expected-error @+1 {{redefinition of symbol named 'layer'}}
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m1_unknown_block" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  // expected-error @+1 {{(M1) no block is called @later; valid: @embedding @layer @head}}
  %1 = trireme.repeat 3 times @later(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m2_wrong_number_of_operands" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  // expected-error @+1 {{(M2) 2 operands, but block @head takes 3}}
  %2 = trireme.call @head(%1, %labels) : (!x, !ids) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m2_operand_of_another_type" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  // expected-error @+1 {{(M2) operand 1 is 'tensor<1xf64, #trireme.dims<one>>', but block @head takes 'tensor<4x2xi32, #trireme.dims<sequence, batch>>'}}
  %2 = trireme.call @head(%1, %old, %old) : (!x, !loss, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m2_result_of_another_type" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %1 = trireme.call @embedding(%tokens) : (!ids) -> !x
  // expected-error @+1 {{(M2) the result is 'tensor<4x2xi32, #trireme.dims<sequence, batch>>', but block @layer makes 'tensor<4x2x8xf32}}
  %0 = trireme.call @layer(%1) : (!x) -> !ids
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "m3_iterations_of_different_types" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    %w = trireme.parameter "layers.{}.w" zeros : tensor<16x8xf32, #trireme.dims<ffn, hidden>>
    %z = trireme.matmul %y, %w : (!x, tensor<16x8xf32, #trireme.dims<ffn, hidden>>) -> tensor<4x2x16xf32, #trireme.dims<sequence, batch, ffn>>
    trireme.yield %z : tensor<4x2x16xf32, #trireme.dims<sequence, batch, ffn>>
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  // expected-error @+1 {{(M3) block @layer cannot be repeated: it takes 'tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>' and makes 'tensor<4x2x16xf32, #trireme.dims<sequence, batch, ffn>>'}}
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
trireme.model "repeated_no_times" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  // expected-error @+1 {{attribute 'count' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %1 = trireme.repeat 0 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
// expected-error @+1 {{(M6) the body must be: a call with the tokens}}
trireme.model "m6_body_of_another_order" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %again = trireme.repeat 3 times @layer(%0) : !x
  %1 = trireme.repeat 3 times @layer(%again) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
// expected-error @+1 {{(M6) 4 blocks, expected one for each of the 3 calls}}
trireme.model "m6_a_block_too_many" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  trireme.block @identity(%input: !x) {
    trireme.yield %input : !x
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
// expected-error @+1 {{(G6) 3 layers and a global batch of 0, expected at least 1 each}}
trireme.model "g6_no_samples" batch 0 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
// expected-error @+1 {{(G7) parameter 'table' is in embedding and head, but not tied, or not the same}}
trireme.model "g7_tied_tables_differ" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.03) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}

// -----

!ids = tensor<4x2xi32, #trireme.dims<sequence, batch>>
!x = tensor<4x2x8xf32, #trireme.dims<sequence, batch, hidden>>
!h = tensor<8xf32, #trireme.dims<hidden>>
!stat = tensor<4x2xf32, #trireme.dims<sequence, batch>>
!table = tensor<16x8xf32, #trireme.dims<vocab, hidden>>
!logits = tensor<4x2x16xf32, #trireme.dims<sequence, batch, vocab>>
!loss = tensor<1xf64, #trireme.dims<one>>
// expected-error @+1 {{(G7) the embedding has no 'tible' to tie the head's to}}
trireme.model "g7_tied_to_nothing" batch 6 (%tokens: !ids, %labels: !ids, %old: !loss) {
  trireme.block @embedding(%tokens: !ids) {
    %table = trireme.parameter "table" normal(0.02) decay tied logical [10, 8] : !table
    %y = trireme.embedding %tokens, %table : (!ids, !table) -> !x
    trireme.yield %y : !x
  }
  trireme.block @layer(%input: !x) {
    %gamma = trireme.parameter "layers.{}.gamma" ones : !h
    %y, %rstd = trireme.rms_norm %input, %gamma {epsilon = 0.1 : f64} : (!x, !h) -> (!x, !stat)
    trireme.yield %y : !x
  }
  trireme.block @head(%input: !x, %labels: !ids, %old: !loss) {
    %table = trireme.parameter "tible" normal(0.02) decay tied logical [10, 8] : !table
    %logits = trireme.matmul %input, %table : (!x, !table) -> !logits
    %max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (!logits) -> !stat
    %target = trireme.loss_target %logits, %max, %labels {logical_vocab = 10 : i64} : (!logits, !stat, !ids) -> !stat
    %sum = trireme.loss_sum_exp %logits, %max {logical_vocab = 10 : i64} : (!logits, !stat) -> !stat
    %loss = trireme.token_loss %target, %sum, %old : (!stat, !stat, !loss) -> !loss
    trireme.yield %loss : !loss
  }
  %0 = trireme.call @embedding(%tokens) : (!ids) -> !x
  %1 = trireme.repeat 3 times @layer(%0) : !x
  %2 = trireme.call @head(%1, %labels, %old) : (!x, !ids, !loss) -> !loss
  trireme.yield %2 : !loss
}
