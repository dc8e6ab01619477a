#!/usr/bin/env python3
"""The peer of against_pytorch.sh: GPT-2 training steps by PyTorch on the CPU.

Prints one JSON object: tokens per second (median step), after warm-up. The model is GPT-2 124M as published, written
for speed: fused attention where this PyTorch has it, fused or foreach AdamW where it has it, no dropout.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = torch.nn.LayerNorm(h), torch.nn.LayerNorm(h)
        self.qkv, self.out = torch.nn.Linear(h, 3 * h), torch.nn.Linear(h, h)
        self.up, self.down = torch.nn.Linear(h, 4 * h), torch.nn.Linear(4 * h, h)

    def forward(self, x, mask):
        b, t, h = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(h, dim=2)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            y = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, h))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, layers=12, h=768, heads=12, vocab=50257, context=1024):
        super().__init__()
        self.words, self.positions = torch.nn.Embedding(vocab, h), torch.nn.Embedding(context, h)
        self.blocks = torch.nn.ModuleList(Block(h, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(h)
        # As published. PyTorch's own N(0, 1) for embeddings gives logits so large that most of the
        # gradient is denormal, and products of denormals run ten times slower.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                torch.nn.init.normal_(parameter, 0.0, 0.02 / (2 * layers) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                torch.nn.init.zeros_(parameter)

    def forward(self, ids, labels):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = self.words(ids) + self.positions(torch.arange(t))
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    p.add_argument("--steps", type=int, default=5)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Gpt2()
    options = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    except (TypeError, RuntimeError):
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, **options)
    seconds = []
    for step in range(args.steps + 2):
        ids = torch.randint(0, 256, (args.batch, args.sequence + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)
    rate = args.batch * args.sequence / statistics.median(seconds)
    print(json.dumps({"torch": torch.__version__, "tokens_per_second": round(rate, 1)}))


main()
