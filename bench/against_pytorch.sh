#!/usr/bin/env bash
# Training speed of GPT-2 124M on this machine's CPU, Trireme against PyTorch, in one run: batch 4,
# sequences of 64 and 256, 1 and 2 threads, fp32 and bf16. Prints a table of tokens/s and ratios.
#
#   TRIREME   the command (default build/release/trireme)
#   PYTHON    a Python that has torch (Debian: apt install python3-torch)
#   STEPS     timed steps (default 5; two more warm up)
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=${TRIREME:-build/release/trireme}
python=${PYTHON:-/usr/bin/python3}
steps=${STEPS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -c 'import torch' || { echo "error: $python has no torch; set PYTHON" >&2; exit 1; }
echo "precision  T    threads  trireme  pytorch  ratio   ($("$python" -c 'import torch; print("PyTorch", torch.__version__)'))"
for precision in fp32 bf16; do
  printf 'precision: %s\nlearning_rate: 3e-4\nweight_decay: 0.1\nclip_norm: 1.0\n' "$precision" > "$work/train.yaml"
  for sequence in 64 256; do
    "$trireme" plan --model examples/models/gpt2-124m.yaml --cluster examples/clusters/local.yaml \
      --gpus 1 --batch 4 --seq "$sequence" --microbatch 4 --recompute none --train "$work/train.yaml" \
      -o "$work/plan.yaml" > /dev/null
    rm -rf "$work/bundle"
    "$trireme" compile --model examples/models/gpt2-124m.yaml --plan "$work/plan.yaml" -o "$work/bundle" > /dev/null
    for threads in 1 2; do
      "$trireme" run "$work/bundle" --data /usr/share/common-licenses/GPL-3 --steps $((steps + 2)) \
        --threads "$threads" --metrics "$work/metrics.jsonl" > /dev/null
      ours=$(tail -n "$steps" "$work/metrics.jsonl" | sed 's/.*"tokens_per_second": *\([0-9.e+]*\).*/\1/' | sort -g | sed -n "$(((steps + 1) / 2))p")
      theirs=$("$python" bench/pytorch_gpt2.py --sequence "$sequence" --threads "$threads" --precision "$precision" --steps "$steps" |
        sed 's/.*"tokens_per_second": *\([0-9.]*\).*/\1/')
      printf '%-9s  %-4s %-8s %-8.1f %-8.1f %.2f\n' "$precision" "$sequence" "$threads" "$ours" "$theirs" \
        "$(echo "$ours $theirs" | awk '{print $1 / $2}')"
      rm -f "$work/metrics.jsonl"
    done
  done
done
