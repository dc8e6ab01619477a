#!/usr/bin/env bash
# Training speed of GPT-2 124M on this machine's CPU, Trireme against PyTorch, in one run: batch 4,
# sequences of 64 and 256, 1 and 2 threads, fp32 and bf16. Prints a table of tokens/s and ratios.
# Takes ten minutes or more on two cores; nothing else should run.
#
#   TRIREME   the command (default build/release/trireme)
#   PYTHONS   Pythons that have torch, separated by spaces (default /usr/bin/python3, Debian's
#             python3-torch; its products come from libblas, so install libopenblas0-pthread too)
#   STEPS     timed steps (default 5; two more warm up); their median counts
#   ROUNDS    how often, taking turns (default 1): the median of the rounds counts, so that what else
#             the machine does slows down both
#   PRECISIONS, SEQUENCES   default "fp32 bf16", "64 256"
#   THREADS   default "1 2"
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=${TRIREME:-build/release/trireme}
read -r -a pythons <<< "${PYTHONS:-/usr/bin/python3}"
steps=${STEPS:-5}
model=examples/models/gpt2-124m.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for python in "${pythons[@]}"; do
  "$python" -c 'import torch' || { echo "error: $python has no torch; set PYTHONS" >&2; exit 1; }
done

# field <name>: its values in the JSON lines on standard input, a line each.
field() { sed 's/.*"'"$1"'" *: *"\{0,1\}\([0-9a-z.+]*\).*/\1/'; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

printf '%-9s %-4s %-7s %8s  %8s %-9s %s\n' precision T threads trireme pytorch version ratio
for precision in ${PRECISIONS:-fp32 bf16}; do
  printf 'precision: %s\nlearning_rate: 3e-4\nweight_decay: 0.1\nclip_norm: 1.0\n' "$precision" \
    > "$work/train.yaml"
  for sequence in ${SEQUENCES:-64 256}; do
    "$trireme" plan --model "$model" --cluster examples/clusters/local.yaml --gpus 1 --batch 4 \
      --seq "$sequence" --microbatch 4 --recompute none --train "$work/train.yaml" \
      -o "$work/plan.yaml" > /dev/null
    rm -rf "$work/bundle"
    "$trireme" compile --model "$model" --plan "$work/plan.yaml" -o "$work/bundle" > /dev/null
    for threads in ${THREADS:-1 2}; do
      rm -f "$work"/rates.*
      for ((round = 0; round < ${ROUNDS:-1}; ++round)); do
        rm -f "$work/metrics.jsonl"
        "$trireme" run "$work/bundle" --data /usr/share/common-licenses/GPL-3 \
          --steps $((steps + 2)) --threads "$threads" --metrics "$work/metrics.jsonl" > /dev/null
        tail -n "$steps" "$work/metrics.jsonl" | field tokens_per_second | median \
          >> "$work/rates.trireme"
        for index in "${!pythons[@]}"; do
          OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads "${pythons[index]}" \
            bench/pytorch_gpt2.py --sequence "$sequence" --threads "$threads" \
            --precision "$precision" --steps "$steps" >> "$work/rates.$index"
        done
      done
      ours=$(median < "$work/rates.trireme")
      for index in "${!pythons[@]}"; do
        rate=$(field tokens_per_second < "$work/rates.$index" | median)
        printf '%-9s %-4s %-7s %8.1f  %8.1f %-9s %.2f\n' "$precision" "$sequence" "$threads" \
          "$ours" "$rate" "$(head -n 1 "$work/rates.$index" | field torch)" \
          "$(awk "BEGIN { print $ours / $rate }")"
      done
    done
  done
done
