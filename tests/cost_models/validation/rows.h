// Rows for tests.
#pragma once
#include <string>

#include "cost_models/validation/row.h"

namespace trireme::cost {

// GPT-3 175B on 96 x 8 GPUs as in Table 2 of SC21, as a row with all cells that a prediction needs.
inline Row gptRow() {
  Row row;
  row.id = "gpt";
  row.stack = "megatron-lm-2021";
  row.scored = true;
  row.source = "here";
  row.gpu = "A100-80GB-SXM";
  row.gpus = 768;
  row.gpusPerNode = 8;
  row.interNodeGbpsPerGpu = 200;
  row.model = "GPT-3 175B";
  row.layers = 96;
  row.hidden = 12288;
  row.heads = 96;
  row.ffn = 49152;
  row.vocab = 51200;
  row.seq = 2048;
  row.globalBatch = 1536;
  row.microBatch = 1;
  row.tp = 8;
  row.pp = 12;
  row.dp = 8;
  row.cp = 1;
  row.vp = 1;
  row.zero = 0;
  row.seqParallel = false;
  row.recompute = "full";
  row.schedule = "1F1B";
  row.precision = "fp16";
  row.iterTime = 39.42;
  return row;
}

// Llama 3 8B with FSDP on 8 GPUs.
inline Row llamaRow() {
  Row row = gptRow();
  row.id = "llama";
  row.stack = "torchtitan";
  row.gpu = "H100-80GB-SXM";
  row.gpus = 8;
  row.interNodeGbpsPerGpu = 400;
  row.model = "Llama3-8B";
  row.layers = 32;
  row.hidden = 4096;
  row.heads = 32;
  row.kvHeads = 8;
  row.ffn = 14336;
  row.vocab = 128256;
  row.seq = 8192;
  row.globalBatch = 16;
  row.tp = row.pp = 1;
  row.dp = 8;
  row.zero = 3;
  row.schedule = "FSDP2";
  row.recompute = "selective";
  row.precision = "bf16";
  return row;
}

}  // namespace trireme::cost
