#!/usr/bin/env python3
"""Tiny random models of every family by Hugging Face transformers, and what they say: the weights as
transformers saves them, and the loss of each of a few sequences, computed from its logits in fp64.

    python3 make_models.py FOLDER        (PyPI: torch and transformers of the versions in goldens.json)

Tokens are those of TransformersData in transformers_test.cpp. Every sum has one order, whatever the
CPU that has AVX2: one thread, and no newer vector instructions.
"""
import json
import os
import sys
from pathlib import Path

os.environ.update(ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="COMPATIBLE", OMP_NUM_THREADS="1")
import torch
import transformers

VOCAB, SEQUENCE, SEQUENCES = 61, 12, 6


def tokens(index):
    return [(7 * i * i + 5 * i * index + 11 * index + i) % VOCAB for i in range(SEQUENCE + 1)]


def models():
    """Each draws its weights when it is made, from where the one before it has left the generator."""
    # Standard deviations of 0.2: random logits that differ, unlike those of the usual 0.02.
    gpt2 = transformers.GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=24, n_layer=2, n_head=3,
                                   initializer_range=0.2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    shape = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                 num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=16,
                 initializer_range=0.2)
    yield "gpt2", transformers.GPT2LMHeadModel(gpt2), None
    yield "llama", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**shape, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=False)), None
    # Saved in several files, with an index.
    yield "llama-biased", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**shape, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), "20KB"
    yield "mistral", transformers.MistralForCausalLM(
        transformers.MistralConfig(**shape, sliding_window=None, tie_word_embeddings=False)), None
    yield "qwen2", transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**shape, tie_word_embeddings=True)), "20KB"
    # Of the four pairs of a head, llama3 leaves the first alone, blends the second and divides the others.
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=0.5, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    linear = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)
    for name, scaling in ("llama-scaled", llama3), ("llama-linear", linear):
        yield name, transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**shape, head_dim=8, rope_parameters=scaling, tie_word_embeddings=False)), None


def randomise(model):
    """Biases and norms too, which transformers starts at 0 and 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))


def main():
    folder = Path(sys.argv[1])
    goldens = {"transformers": transformers.__version__, "torch": torch.__version__}
    torch.manual_seed(0)
    for seed, (name, model, shard) in enumerate(models()):
        torch.manual_seed(seed)
        randomise(model)
        model.eval()
        sizes = {} if shard is None else {"max_shard_size": shard}
        model.save_pretrained(folder / name, safe_serialization=True, **sizes)
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        exact = model.double()
        losses = []
        for index in range(SEQUENCES):
            ids = torch.tensor([tokens(index)])
            with torch.no_grad():
                logits = exact(ids[:, :-1]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item())
        goldens[name] = losses
    (folder / "goldens.json").write_text(json.dumps(goldens, indent=1) + "\n")


if __name__ == "__main__":
    main()
