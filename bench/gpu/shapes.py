"""The models of bench/gpu, their batch, and what a training step of them computes."""

# name: family, layers, width, heads, key/value heads, feed-forward, vocabulary, tokens, sequences;
# as in examples/models, bench/gpu/models and bench/gpu/plan
MODELS = {
    "gpt2-124m": ("gpt", 12, 768, 12, 12, 3072, 50257, 1024, 32),
    "gpt2-350m": ("gpt", 24, 1024, 16, 16, 4096, 50257, 1024, 16),
    "gpt2-1.5b": ("gpt", 48, 1600, 25, 25, 6400, 50257, 1024, 8),
    "llama-1b": ("llama", 16, 2048, 32, 8, 8192, 128256, 2048, 8),
}
PEAK = 989e12  # FLOP/s: dense bf16 of an H100 or H200 SXM (NVIDIA's datasheet)


def chosen(names):
    """Those of the command line, or all. Ends the process if there is no such model."""
    for name in names:
        if name not in MODELS:
            raise SystemExit(f"error: no model {name}; there are {', '.join(MODELS)}")
    return list(names) or list(MODELS)


def parameters(family, layers, c, heads, kv, f, vocab, *_):
    """Without the table of positions. Output and input table are one."""
    if family == "gpt":
        layer = 3 * c * c + 3 * c + c * c + c + 2 * c * f + f + c + 4 * c
        return vocab * c + layers * layer + 2 * c
    layer = 2 * c * c + 2 * c * (c // heads) * kv + 3 * c * f + 2 * c
    return vocab * c + layers * layer + c


def mfu(shape, tokens_per_second):
    """Of PEAK, by 6 N + 12 L C T FLOPs of a token: N parameters(), L layers, C width of the heads together, T tokens of
    a sequence (Chowdhery et al., PaLM, 2022, appendix B)."""
    layers, c, t = shape[1], shape[2], shape[7]
    return tokens_per_second * (6 * parameters(*shape) + 12 * layers * c * t) / PEAK
