"""The peer of bench/gpu/run: the same training step by PyTorch on one GPU, written for speed.

  pytorch_models.py SHAPE WARM_UP STEPS    SHAPE: a row of MODELS in shapes.py, as JSON

Prints {"seconds": [...]}: of each timed step. Weights are f32 under autocast to bf16, which keeps master weights as
Trireme does; torch.compile; fused AdamW; scaled_dot_product_attention picks its fastest kernel (flash or cuDNN).
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, family, c, heads, kv, f, t):
        super().__init__()
        self.gpt, self.heads, self.kv, self.size = family == "gpt", heads, kv, c // heads
        norm = nn.LayerNorm if self.gpt else nn.RMSNorm
        self.norm1, self.norm2 = norm(c), norm(c)
        self.qkv = nn.Linear(c, (heads + 2 * kv) * self.size, bias=self.gpt)
        self.out = nn.Linear(c, c, bias=self.gpt)
        self.up, self.down = nn.Linear(c, f if self.gpt else 2 * f, bias=self.gpt), nn.Linear(f, c, bias=self.gpt)
        if not self.gpt:
            angle = torch.outer(torch.arange(t), 5e5 ** (-torch.arange(0, self.size, 2) / self.size))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        sizes = [self.heads * self.size, self.kv * self.size, self.kv * self.size]
        q, k, v = self.qkv(self.norm1(x)).split(sizes, dim=2)
        q, k, v = (y.view(b, t, -1, self.size).transpose(1, 2) for y in (q, k, v))
        if not self.gpt:
            q, k = (rotate(y, self.cos, self.sin).to(v.dtype) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        h = self.up(self.norm2(x))
        if self.gpt:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, family, layers, c, heads, kv, f, vocab, t, _):
        super().__init__()
        self.words = nn.Embedding((vocab + 127) // 128 * 128, c)  # padded, as ours
        self.positions = nn.Embedding(t, c) if family == "gpt" else None
        self.blocks = nn.ModuleList(Block(family, c, heads, kv, f, t) for _ in range(layers))
        self.norm = (nn.LayerNorm if family == "gpt" else nn.RMSNorm)(c)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, ids, labels):
        x = self.words(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))


def main():
    shape, warm_up, steps = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    vocab, t, batch = shape[6], shape[7], shape[8]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Model(*shape)
    step_model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for step in range(warm_up + steps):
        ids = torch.randint(0, vocab, (batch, t + 1)).pin_memory()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        ids = ids.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = step_model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= warm_up:
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds}))


main()
