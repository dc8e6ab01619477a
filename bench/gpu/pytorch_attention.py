"""The peer of bench/gpu/attention: PyTorch's scaled_dot_product_attention on one GPU, bf16, causal.

  pytorch_attention.py SHAPES    JSON: lists of tokens, sequences, heads, heads of keys and values, size of a head

Prints of each shape {"flash": {"forward": seconds, "backward": seconds}, "cuDNN": the same}, with {"error": text} for a
backend that does not run. Operands lie as pytorch_models.py has them: [sequence, token, head, size].
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"}
WARM_UP, BATCHES, BATCH_MS, MOST_CALLS = 5, 7, 1.0, 1024


def milliseconds(call, calls):
    """Of so many calls, by the GPU's events."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def seconds(call):
    """Of one call: the median of batches."""
    milliseconds(call, WARM_UP)
    once = milliseconds(call, 1)
    calls = min(max(round(BATCH_MS / max(once, 1e-6)), 1), MOST_CALLS)
    return 1e-3 * statistics.median(milliseconds(call, calls) / calls for _ in range(BATCHES))


def measured(shape, backend):
    tokens, sequences, heads, kv, size = shape

    def operand(number):
        values = torch.randn(sequences, tokens, number, size, device="cuda", dtype=torch.bfloat16)
        return values.transpose(1, 2)

    q, k, v = operand(heads).requires_grad_(), operand(kv).requires_grad_(), operand(kv).requires_grad_()
    gradient = operand(heads)
    grouped = {"enable_gqa": True} if kv != heads else {}

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)

    with sdpa_kernel(backend):
        context = forward()
        return {"forward": seconds(forward),
                "backward": seconds(lambda: torch.autograd.grad(context, (q, k, v), gradient, retain_graph=True))}


def attempt(shape, name):
    try:
        return measured(shape, getattr(SDPBackend, name))
    except (RuntimeError, TypeError, AttributeError) as error:  # a backend that refuses, an older PyTorch
        return {"error": str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}


def main():
    torch.manual_seed(0)
    print(json.dumps([{side: attempt(shape, name) for side, name in BACKENDS.items()} for shape in json.loads(sys.argv[1])]))


main()
