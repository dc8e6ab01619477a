// The text of the model graph; ModelGraphText.GoldenFilesAreWhatIsPrinted compares it with ir/graph.
// RUN: grep -v ^// %s > %t
// RUN: trireme-opt %s | sed '$d' > %t.out
// RUN: diff %t %t.out
#bqs = #trireme.dims<batch, head, sequence>
#geh = #trireme.dims<group, head_width, hidden>
#h = #trireme.dims<hidden>
#hf = #trireme.dims<hidden, ffn>
#hgc = #trireme.dims<hidden, group, context_width>
#o = #trireme.dims<one>
#sb = #trireme.dims<sequence, batch>
#sbf = #trireme.dims<sequence, batch, ffn>
#sbgc = #trireme.dims<sequence, batch, group, context_width>
#sbge = #trireme.dims<sequence, batch, group, head_width>
#sbh = #trireme.dims<sequence, batch, hidden>
#sbuf = #trireme.dims<sequence, batch, gate_up, ffn>
#sbv = #trireme.dims<sequence, batch, vocab>
#ufh = #trireme.dims<gate_up, ffn, hidden>
#vh = #trireme.dims<vocab, hidden>
module {
  trireme.model "tiny-llama" batch 6 (%batch.tokens: tensor<4x2xi32, #sb>, %batch.labels: tensor<4x2xi32, #sb>, %batch.old_loss: tensor<1xf64, #o>) {
    trireme.block @embedding(%tokens: tensor<4x2xi32, #sb>) {
      %embedding.word.weight = trireme.parameter "embedding.word.weight" normal(2.000000e-02) decay logical [10, 8] : tensor<16x8xbf16, #vh>
      %embedding.word = trireme.embedding %tokens, %embedding.word.weight : (tensor<4x2xi32, #sb>, tensor<16x8xbf16, #vh>) -> tensor<4x2x8xbf16, #sbh>
      trireme.yield %embedding.word : tensor<4x2x8xbf16, #sbh>
    }
    trireme.block @layer(%input: tensor<4x2x8xbf16, #sbh>) {
      %attn_norm.weight = trireme.parameter "layers.{}.attn_norm.weight" ones : tensor<8xbf16, #h>
      %attn_norm.out, %attn_norm.rstd = trireme.rms_norm %input, %attn_norm.weight {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xbf16, #sbh>, tensor<8xbf16, #h>) -> (tensor<4x2x8xbf16, #sbh>, tensor<4x2xf32, #sb>)
      %attn.qkv.weight = trireme.parameter "layers.{}.attn.qkv.weight" normal(2.000000e-02) decay : tensor<1x16x8xbf16, #geh>
      %attn.qkv.product = trireme.matmul %attn_norm.out, %attn.qkv.weight : (tensor<4x2x8xbf16, #sbh>, tensor<1x16x8xbf16, #geh>) -> tensor<4x2x1x16xbf16, #sbge>
      %attn.rotated = trireme.rotary %attn.qkv.product {head_size = 4 : i64, heads_per_group = 2 : i64, rope_theta = 1.000000e+04 : f64} : (tensor<4x2x1x16xbf16, #sbge>) -> tensor<4x2x1x16xbf16, #sbge>
      %attn.context, %attn.lse = trireme.attention %attn.rotated {head_size = 4 : i64, heads_per_group = 2 : i64, probability = 0.000000e+00 : f64, stream = #trireme.stream<init>} : (tensor<4x2x1x16xbf16, #sbge>) -> (tensor<4x2x1x8xbf16, #sbgc>, tensor<2x2x4xf32, #bqs>)
      %attn.out.weight = trireme.parameter "layers.{}.attn.out.weight" normal(0.0081649658092772612) decay : tensor<8x1x8xbf16, #hgc>
      %attn.out.product = trireme.matmul %attn.context, %attn.out.weight : (tensor<4x2x1x8xbf16, #sbgc>, tensor<8x1x8xbf16, #hgc>) -> tensor<4x2x8xbf16, #sbh>
      %middle = trireme.add %input, %attn.out.product : (tensor<4x2x8xbf16, #sbh>, tensor<4x2x8xbf16, #sbh>) -> tensor<4x2x8xbf16, #sbh>
      %mlp_norm.weight = trireme.parameter "layers.{}.mlp_norm.weight" ones : tensor<8xbf16, #h>
      %mlp_norm.out, %mlp_norm.rstd = trireme.rms_norm %middle, %mlp_norm.weight {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xbf16, #sbh>, tensor<8xbf16, #h>) -> (tensor<4x2x8xbf16, #sbh>, tensor<4x2xf32, #sb>)
      %mlp.gate_up.weight = trireme.parameter "layers.{}.mlp.gate_up.weight" normal(2.000000e-02) decay : tensor<2x16x8xbf16, #ufh>
      %mlp.gate_up.product = trireme.matmul %mlp_norm.out, %mlp.gate_up.weight : (tensor<4x2x8xbf16, #sbh>, tensor<2x16x8xbf16, #ufh>) -> tensor<4x2x2x16xbf16, #sbuf>
      %mlp.hidden = trireme.swiglu %mlp.gate_up.product : (tensor<4x2x2x16xbf16, #sbuf>) -> tensor<4x2x16xbf16, #sbf>
      %mlp.down.weight = trireme.parameter "layers.{}.mlp.down.weight" normal(0.0081649658092772612) decay : tensor<8x16xbf16, #hf>
      %mlp.down.product = trireme.matmul %mlp.hidden, %mlp.down.weight : (tensor<4x2x16xbf16, #sbf>, tensor<8x16xbf16, #hf>) -> tensor<4x2x8xbf16, #sbh>
      %output = trireme.add %middle, %mlp.down.product : (tensor<4x2x8xbf16, #sbh>, tensor<4x2x8xbf16, #sbh>) -> tensor<4x2x8xbf16, #sbh>
      trireme.yield %output : tensor<4x2x8xbf16, #sbh>
    }
    trireme.block @head(%input: tensor<4x2x8xbf16, #sbh>, %labels: tensor<4x2xi32, #sb>, %old_loss: tensor<1xf64, #o>) {
      %final_norm.weight = trireme.parameter "final_norm.weight" ones : tensor<8xbf16, #h>
      %final_norm.out, %final_norm.rstd = trireme.rms_norm %input, %final_norm.weight {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xbf16, #sbh>, tensor<8xbf16, #h>) -> (tensor<4x2x8xbf16, #sbh>, tensor<4x2xf32, #sb>)
      %head.weight = trireme.parameter "head.weight" normal(2.000000e-02) decay logical [10, 8] : tensor<16x8xbf16, #vh>
      %logits = trireme.matmul %final_norm.out, %head.weight : (tensor<4x2x8xbf16, #sbh>, tensor<16x8xbf16, #vh>) -> tensor<4x2x16xbf16, #sbv>
      %loss.max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (tensor<4x2x16xbf16, #sbv>) -> tensor<4x2xf32, #sb>
      %loss.target = trireme.loss_target %logits, %loss.max, %labels {logical_vocab = 10 : i64} : (tensor<4x2x16xbf16, #sbv>, tensor<4x2xf32, #sb>, tensor<4x2xi32, #sb>) -> tensor<4x2xf32, #sb>
      %loss.sum_exp = trireme.loss_sum_exp %logits, %loss.max {logical_vocab = 10 : i64} : (tensor<4x2x16xbf16, #sbv>, tensor<4x2xf32, #sb>) -> tensor<4x2xf32, #sb>
      %loss = trireme.token_loss %loss.target, %loss.sum_exp, %old_loss : (tensor<4x2xf32, #sb>, tensor<4x2xf32, #sb>, tensor<1xf64, #o>) -> tensor<1xf64, #o>
      trireme.yield %loss : tensor<1xf64, #o>
    }
    %embedding = trireme.call @embedding(%batch.tokens) : (tensor<4x2xi32, #sb>) -> tensor<4x2x8xbf16, #sbh>
    %layer = trireme.repeat 3 times @layer(%embedding) : tensor<4x2x8xbf16, #sbh>
    %head = trireme.call @head(%layer, %batch.labels, %batch.old_loss) : (tensor<4x2x8xbf16, #sbh>, tensor<4x2xi32, #sb>, tensor<1xf64, #o>) -> tensor<1xf64, #o>
    trireme.yield %head : tensor<1xf64, #o>
  }
}
