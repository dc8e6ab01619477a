#!/usr/bin/env python3
"""Losses and gradients of three tiny models by PyTorch in fp64: the goldens of pytorch_test.cpp.

    python3 make_goldens.py > goldens.json        (PyPI: torch and numpy of the versions in goldens.json)

The models are written here from their papers, independently of the C++ code; only the initial draw
(Philox-4x32-10 and Box-Muller, ir/base/rng.h) and the parameter layout are shared.

Every sum has one order, whatever the CPU: one thread, and kernels without its vector instructions.
"""
import json
import math
import os

os.environ.update(ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE", OMP_NUM_THREADS="1")

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
SEED, VOCAB, SEQ, BATCH, HIDDEN, LAYERS, STD = 1234, 29, 8, 4, 16, 2, 0.02
MASK = np.uint64(0xFFFFFFFF)


def philox(counter, key):
    """counter: four uint64 arrays holding 32-bit words; key: two ints."""
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    k0, k1 = key
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & MASK,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & MASK]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def init_key():
    w = philox([0, 0, 0, 1], (SEED & 0xFFFFFFFF, SEED >> 32))  # step 0, layer 0, stream kInit = 1
    return int(w[0]), int(w[1])


class Parameters:
    """Draws the parameters in logical order and remembers them by name."""

    def __init__(self):
        self.named, self.index = {}, 0

    def make(self, name, dims, kind, std=STD):
        n = math.prod(dims)
        if kind == "normal":
            w = np.stack(philox([np.arange((n + 3) // 4), 0, self.index, 0], init_key()), axis=1)
            pairs = w.reshape(-1, 2).astype(np.float64)  # words 2 p and 2 p + 1 of each call
            values = []
            for first, second in pairs.tolist():  # numpy's functions depend on the CPU
                radius = math.sqrt(-2.0 * math.log((first + 1.0) * 2.0**-32))
                angle = 2.0 * math.pi * second * 2.0**-32
                values += [radius * math.cos(angle), radius * math.sin(angle)]
            values = np.array(values[:n]) * std
        else:
            values = np.full(n, 1.0 if kind == "ones" else 0.0)
        self.index += 1
        tensor = torch.tensor(values).reshape(dims).requires_grad_()
        self.named[name] = tensor
        return tensor


def tokens():
    ids = torch.tensor([[(7 * i * i + 3 * b + i) % VOCAB for i in range(SEQ + 1)] for b in range(BATCH)])
    return ids[:, :-1], ids[:, 1:]


def attend(q, k, v, head):
    """q [b, s, n, d], k and v [b, s, m, d]: causal, query head i reads key head i // (n / m)."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], dim=2)
    scores = torch.einsum("bqnd,bknd->bnqk", q, k) / math.sqrt(head)
    mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    p = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return torch.einsum("bnqk,bknd->bqnd", p, v)


def split_qkv(qkv, groups, per_group, head):
    """[b, s, g, e] with e = per_group query heads, one key head, one value head."""
    b, s = qkv.shape[:2]
    qkv = qkv.reshape(b, s, groups, per_group + 2, head)
    q = qkv[:, :, :, :per_group].reshape(b, s, groups * per_group, head)
    return q, qkv[:, :, :, per_group], qkv[:, :, :, per_group + 1]


def gpt(p):
    heads, head, ffn = 4, 4, 64
    ids, labels = tokens()
    words = p.make("embedding.word.weight", [VOCAB, HIDDEN], "normal")
    positions = p.make("embedding.position.weight", [SEQ, HIDDEN], "normal")
    x = words[ids] + positions[None]
    res = STD / math.sqrt(2 * LAYERS)
    norm = lambda t, g, b: torch.nn.functional.layer_norm(t, [HIDDEN], g, b, 1e-5)
    for layer in range(LAYERS):
        n = f"layers.{layer}."
        g1, b1 = p.make(n + "attn_norm.weight", [HIDDEN], "ones"), p.make(n + "attn_norm.bias", [HIDDEN], "zeros")
        wqkv = p.make(n + "attn.qkv.weight", [heads, 3 * head, HIDDEN], "normal")
        bqkv = p.make(n + "attn.qkv.bias", [heads, 3 * head], "zeros")
        wo = p.make(n + "attn.out.weight", [HIDDEN, heads, head], "normal", res)
        bo = p.make(n + "attn.out.bias", [HIDDEN], "zeros")
        g2, b2 = p.make(n + "mlp_norm.weight", [HIDDEN], "ones"), p.make(n + "mlp_norm.bias", [HIDDEN], "zeros")
        w1, c1 = p.make(n + "mlp.up.weight", [ffn, HIDDEN], "normal"), p.make(n + "mlp.up.bias", [ffn], "zeros")
        w2, c2 = p.make(n + "mlp.down.weight", [HIDDEN, ffn], "normal", res), p.make(n + "mlp.down.bias", [HIDDEN], "zeros")
        qkv = torch.einsum("bsh,geh->bsge", norm(x, g1, b1), wqkv) + bqkv
        ctx = attend(*split_qkv(qkv, heads, 1, head), head)
        x = x + torch.einsum("bsgc,hgc->bsh", ctx, wo) + bo
        u = norm(x, g2, b2) @ w1.T + c1
        x = x + torch.nn.functional.gelu(u, approximate="tanh") @ w2.T + c2
    g, b = p.make("final_norm.weight", [HIDDEN], "ones"), p.make("final_norm.bias", [HIDDEN], "zeros")
    logits = norm(x, g, b) @ words.T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


# rope_scaling of type llama3: factor, low_freq_factor, high_freq_factor, original length. Of the four
# pairs of a head of 8, the first stays, the second is blended, the others are divided.
SCALING = (8.0, 0.5, 4.0, 64)


def frequencies(head, theta, scaling):
    """As the report on Llama 3.1 and its code have it, by the wavelength of each pair."""
    values = []
    for i in range(head // 2):
        wavelength = 2 * math.pi * theta ** (2 * i / head)
        if scaling is not None:
            factor, low, high, original = scaling
            if wavelength > original / low:
                wavelength *= factor
            elif wavelength > original / high:
                smooth = (original / wavelength - low) / (high - low)
                wavelength /= (1 - smooth) / factor + smooth
        values.append(2 * math.pi / wavelength)
    return torch.tensor(values)


def rotate(t, head, theta, scaling):
    half = head // 2
    angle = torch.arange(SEQ)[:, None] * frequencies(head, theta, scaling)[None]
    cos, sin = torch.cos(angle)[None, :, None], torch.sin(angle)[None, :, None]
    a, b = t[..., :half], t[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def llama(p, head=4, scaling=None):
    heads, groups, ffn = 4, 2, 40
    ids, labels = tokens()
    x = p.make("embedding.word.weight", [VOCAB, HIDDEN], "normal")[ids]
    res = STD / math.sqrt(2 * LAYERS)
    norm = lambda t, g: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + 1e-5) * g
    for layer in range(LAYERS):
        n = f"layers.{layer}."
        g1 = p.make(n + "attn_norm.weight", [HIDDEN], "ones")
        wqkv = p.make(n + "attn.qkv.weight", [groups, (heads // groups + 2) * head, HIDDEN], "normal")
        wo = p.make(n + "attn.out.weight", [HIDDEN, groups, heads // groups * head], "normal", res)
        g2 = p.make(n + "mlp_norm.weight", [HIDDEN], "ones")
        w1 = p.make(n + "mlp.gate_up.weight", [2, ffn, HIDDEN], "normal")
        w2 = p.make(n + "mlp.down.weight", [HIDDEN, ffn], "normal", res)
        qkv = torch.einsum("bsh,geh->bsge", norm(x, g1), wqkv)
        q, k, v = split_qkv(qkv, groups, heads // groups, head)
        ctx = attend(rotate(q, head, 10000.0, scaling), rotate(k, head, 10000.0, scaling), v, head)
        x = x + torch.einsum("bsgc,hgc->bsh", ctx.reshape(BATCH, SEQ, groups, -1), wo)
        u = torch.einsum("bsh,ufh->bsuf", norm(x, g2), w1)
        x = x + (torch.nn.functional.silu(u[:, :, 0]) * u[:, :, 1]) @ w2.T
    g = p.make("final_norm.weight", [HIDDEN], "ones")
    head_weight = p.make("head.weight", [VOCAB, HIDDEN], "normal")
    logits = norm(x, g) @ head_weight.T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


def scaled_llama(p):
    return llama(p, 8, SCALING)


def describe(build):
    p = Parameters()
    loss = build(p)
    loss.backward()
    gradients = {}
    for name, tensor in p.named.items():
        g = tensor.grad.reshape(-1)
        weights = torch.cos(torch.arange(g.numel()) * 0.7)  # a dot product sees every element's place
        gradients[name] = {"norm": g.norm().item(), "dot": (g * weights).sum().item(),
                           "first": g[:4].tolist()}
    return {"loss": loss.item(), "gradients": gradients}


print(json.dumps({"torch": torch.__version__, "numpy": np.__version__, "gpt": describe(gpt),
                  "llama": describe(llama), "scaled-llama": describe(scaled_llama)}, indent=1))
