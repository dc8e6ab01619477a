// The text of the model graph; ModelGraphText.GoldenFilesAreWhatIsPrinted compares it with ir/graph.
// RUN: grep -v ^// %s > %t
// RUN: trireme-opt %s | sed '$d' > %t.out
// RUN: diff %t %t.out
#bqs = #trireme.dims<batch, head, sequence>
#f = #trireme.dims<ffn>
#fh = #trireme.dims<ffn, hidden>
#ge = #trireme.dims<group, head_width>
#geh = #trireme.dims<group, head_width, hidden>
#h = #trireme.dims<hidden>
#hf = #trireme.dims<hidden, ffn>
#hgc = #trireme.dims<hidden, group, context_width>
#nh = #trireme.dims<position, hidden>
#o = #trireme.dims<one>
#sb = #trireme.dims<sequence, batch>
#sbf = #trireme.dims<sequence, batch, ffn>
#sbgc = #trireme.dims<sequence, batch, group, context_width>
#sbge = #trireme.dims<sequence, batch, group, head_width>
#sbh = #trireme.dims<sequence, batch, hidden>
#sbv = #trireme.dims<sequence, batch, vocab>
#vh = #trireme.dims<vocab, hidden>
module {
  trireme.model "tiny-gpt" batch 6 (%batch.tokens: tensor<4x2xi32, #sb>, %batch.labels: tensor<4x2xi32, #sb>, %batch.old_loss: tensor<1xf64, #o>) {
    trireme.block @embedding(%tokens: tensor<4x2xi32, #sb>) {
      %embedding.word.weight = trireme.parameter "embedding.word.weight" normal(2.000000e-02) decay tied logical [10, 8] : tensor<16x8xf32, #vh>
      %embedding.word = trireme.embedding %tokens, %embedding.word.weight : (tensor<4x2xi32, #sb>, tensor<16x8xf32, #vh>) -> tensor<4x2x8xf32, #sbh>
      %embedding.position.weight = trireme.parameter "embedding.position.weight" normal(2.000000e-02) decay : tensor<6x8xf32, #nh>
      %embedding.sum = trireme.add_position %embedding.word, %embedding.position.weight : (tensor<4x2x8xf32, #sbh>, tensor<6x8xf32, #nh>) -> tensor<4x2x8xf32, #sbh>
      %embedding.dropout = trireme.dropout %embedding.sum {probability = 1.250000e-01 : f64, stream = #trireme.stream<embedding_dropout>} : (tensor<4x2x8xf32, #sbh>) -> tensor<4x2x8xf32, #sbh>
      trireme.yield %embedding.dropout : tensor<4x2x8xf32, #sbh>
    }
    trireme.block @layer(%input: tensor<4x2x8xf32, #sbh>) {
      %attn_norm.weight = trireme.parameter "layers.{}.attn_norm.weight" ones : tensor<8xf32, #h>
      %attn_norm.bias = trireme.parameter "layers.{}.attn_norm.bias" zeros : tensor<8xf32, #h>
      %attn_norm.out, %attn_norm.mean, %attn_norm.rstd = trireme.layer_norm %input, %attn_norm.weight, %attn_norm.bias {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xf32, #sbh>, tensor<8xf32, #h>, tensor<8xf32, #h>) -> (tensor<4x2x8xf32, #sbh>, tensor<4x2xf32, #sb>, tensor<4x2xf32, #sb>)
      %attn.qkv.weight = trireme.parameter "layers.{}.attn.qkv.weight" normal(2.000000e-02) decay : tensor<2x12x8xf32, #geh>
      %attn.qkv.product = trireme.matmul %attn_norm.out, %attn.qkv.weight : (tensor<4x2x8xf32, #sbh>, tensor<2x12x8xf32, #geh>) -> tensor<4x2x2x12xf32, #sbge>
      %attn.qkv.bias = trireme.parameter "layers.{}.attn.qkv.bias" zeros : tensor<2x12xf32, #ge>
      %attn.qkv.out = trireme.bias_add %attn.qkv.product, %attn.qkv.bias : (tensor<4x2x2x12xf32, #sbge>, tensor<2x12xf32, #ge>) -> tensor<4x2x2x12xf32, #sbge>
      %attn.context, %attn.lse = trireme.attention %attn.qkv.out {head_size = 4 : i64, heads_per_group = 1 : i64, probability = 0.041666666666666664 : f64, stream = #trireme.stream<attention_dropout>} : (tensor<4x2x2x12xf32, #sbge>) -> (tensor<4x2x2x4xf32, #sbgc>, tensor<2x2x4xf32, #bqs>)
      %attn.out.weight = trireme.parameter "layers.{}.attn.out.weight" normal(0.0081649658092772612) decay : tensor<8x2x4xf32, #hgc>
      %attn.out.product = trireme.matmul %attn.context, %attn.out.weight : (tensor<4x2x2x4xf32, #sbgc>, tensor<8x2x4xf32, #hgc>) -> tensor<4x2x8xf32, #sbh>
      %attn.out.bias = trireme.parameter "layers.{}.attn.out.bias" zeros : tensor<8xf32, #h>
      %attn.out.out = trireme.bias_add %attn.out.product, %attn.out.bias : (tensor<4x2x8xf32, #sbh>, tensor<8xf32, #h>) -> tensor<4x2x8xf32, #sbh>
      %attn.dropout = trireme.dropout %attn.out.out {probability = 6.250000e-02 : f64, stream = #trireme.stream<attention_out_dropout>} : (tensor<4x2x8xf32, #sbh>) -> tensor<4x2x8xf32, #sbh>
      %middle = trireme.add %input, %attn.dropout : (tensor<4x2x8xf32, #sbh>, tensor<4x2x8xf32, #sbh>) -> tensor<4x2x8xf32, #sbh>
      %mlp_norm.weight = trireme.parameter "layers.{}.mlp_norm.weight" ones : tensor<8xf32, #h>
      %mlp_norm.bias = trireme.parameter "layers.{}.mlp_norm.bias" zeros : tensor<8xf32, #h>
      %mlp_norm.out, %mlp_norm.mean, %mlp_norm.rstd = trireme.layer_norm %middle, %mlp_norm.weight, %mlp_norm.bias {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xf32, #sbh>, tensor<8xf32, #h>, tensor<8xf32, #h>) -> (tensor<4x2x8xf32, #sbh>, tensor<4x2xf32, #sb>, tensor<4x2xf32, #sb>)
      %mlp.up.weight = trireme.parameter "layers.{}.mlp.up.weight" normal(2.000000e-02) decay : tensor<16x8xf32, #fh>
      %mlp.up.product = trireme.matmul %mlp_norm.out, %mlp.up.weight : (tensor<4x2x8xf32, #sbh>, tensor<16x8xf32, #fh>) -> tensor<4x2x16xf32, #sbf>
      %mlp.up.bias = trireme.parameter "layers.{}.mlp.up.bias" zeros : tensor<16xf32, #f>
      %mlp.up.out = trireme.bias_add %mlp.up.product, %mlp.up.bias : (tensor<4x2x16xf32, #sbf>, tensor<16xf32, #f>) -> tensor<4x2x16xf32, #sbf>
      %mlp.hidden = trireme.gelu %mlp.up.out : (tensor<4x2x16xf32, #sbf>) -> tensor<4x2x16xf32, #sbf>
      %mlp.down.weight = trireme.parameter "layers.{}.mlp.down.weight" normal(0.0081649658092772612) decay : tensor<8x16xf32, #hf>
      %mlp.down.product = trireme.matmul %mlp.hidden, %mlp.down.weight : (tensor<4x2x16xf32, #sbf>, tensor<8x16xf32, #hf>) -> tensor<4x2x8xf32, #sbh>
      %mlp.down.bias = trireme.parameter "layers.{}.mlp.down.bias" zeros : tensor<8xf32, #h>
      %mlp.down.out = trireme.bias_add %mlp.down.product, %mlp.down.bias : (tensor<4x2x8xf32, #sbh>, tensor<8xf32, #h>) -> tensor<4x2x8xf32, #sbh>
      %mlp.dropout = trireme.dropout %mlp.down.out {probability = 6.250000e-02 : f64, stream = #trireme.stream<mlp_out_dropout>} : (tensor<4x2x8xf32, #sbh>) -> tensor<4x2x8xf32, #sbh>
      %output = trireme.add %middle, %mlp.dropout : (tensor<4x2x8xf32, #sbh>, tensor<4x2x8xf32, #sbh>) -> tensor<4x2x8xf32, #sbh>
      trireme.yield %output : tensor<4x2x8xf32, #sbh>
    }
    trireme.block @head(%input: tensor<4x2x8xf32, #sbh>, %labels: tensor<4x2xi32, #sb>, %old_loss: tensor<1xf64, #o>) {
      %final_norm.weight = trireme.parameter "final_norm.weight" ones : tensor<8xf32, #h>
      %final_norm.bias = trireme.parameter "final_norm.bias" zeros : tensor<8xf32, #h>
      %final_norm.out, %final_norm.mean, %final_norm.rstd = trireme.layer_norm %input, %final_norm.weight, %final_norm.bias {epsilon = 1.000000e-05 : f64} : (tensor<4x2x8xf32, #sbh>, tensor<8xf32, #h>, tensor<8xf32, #h>) -> (tensor<4x2x8xf32, #sbh>, tensor<4x2xf32, #sb>, tensor<4x2xf32, #sb>)
      %embedding.word.weight = trireme.parameter "embedding.word.weight" normal(2.000000e-02) decay tied logical [10, 8] : tensor<16x8xf32, #vh>
      %logits = trireme.matmul %final_norm.out, %embedding.word.weight : (tensor<4x2x8xf32, #sbh>, tensor<16x8xf32, #vh>) -> tensor<4x2x16xf32, #sbv>
      %loss.max = trireme.loss_max %logits {logical_vocab = 10 : i64} : (tensor<4x2x16xf32, #sbv>) -> tensor<4x2xf32, #sb>
      %loss.target = trireme.loss_target %logits, %loss.max, %labels {logical_vocab = 10 : i64} : (tensor<4x2x16xf32, #sbv>, tensor<4x2xf32, #sb>, tensor<4x2xi32, #sb>) -> tensor<4x2xf32, #sb>
      %loss.sum_exp = trireme.loss_sum_exp %logits, %loss.max {logical_vocab = 10 : i64} : (tensor<4x2x16xf32, #sbv>, tensor<4x2xf32, #sb>) -> tensor<4x2xf32, #sb>
      %loss = trireme.token_loss %loss.target, %loss.sum_exp, %old_loss : (tensor<4x2xf32, #sb>, tensor<4x2xf32, #sb>, tensor<1xf64, #o>) -> tensor<1xf64, #o>
      trireme.yield %loss : tensor<1xf64, #o>
    }
    %embedding = trireme.call @embedding(%batch.tokens) : (tensor<4x2xi32, #sb>) -> tensor<4x2x8xf32, #sbh>
    %layer = trireme.repeat 3 times @layer(%embedding) : tensor<4x2x8xf32, #sbh>
    %head = trireme.call @head(%layer, %batch.labels, %batch.old_loss) : (tensor<4x2x8xf32, #sbh>, tensor<4x2xi32, #sb>, tensor<1xf64, #o>) -> tensor<1xf64, #o>
    trireme.yield %head : tensor<1xf64, #o>
  }
}
