#!/usr/bin/env bash
# Weak scaling of data parallelism on this machine: GPT-2 124M in fp32, T = 256, 4 samples per rank,
# one rank on one core against two replicas on two. Prints tokens/s and their ratio (2 is perfect).
# Both run in turns, ROUNDS times, and the medians count: nothing else should run.
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=${TRIREME:-build/release/trireme}
steps=${STEPS:-4}
rounds=${ROUNDS:-2}
model=examples/models/gpt2-124m.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'precision: fp32\nlearning_rate: 3e-4\nweight_decay: 0.1\nclip_norm: 1.0\n' > "$work/train.yaml"

for ranks in 1 2; do
  "$trireme" plan --model "$model" --cluster examples/clusters/local.yaml --gpus "$ranks" \
    --batch $((4 * ranks)) --seq 256 --tp 1 --pp 1 --dp "$ranks" --microbatch 4 --recompute none \
    --train "$work/train.yaml" -o "$work/$ranks.yaml" > /dev/null
  "$trireme" compile --model "$model" --plan "$work/$ranks.yaml" -o "$work/$ranks.bundle" > /dev/null
done

for ((round = 0; round < rounds; ++round)); do
  for ranks in 1 2; do
    rm -f "$work/metrics.jsonl"
    cores=0; (( ranks == 2 )) && cores=0,1
    taskset -c "$cores" "$trireme" run "$work/$ranks.bundle" --threads 1 --steps $((steps + 1)) \
      --data /usr/share/common-licenses/GPL-3 --metrics "$work/metrics.jsonl" > /dev/null
    tail -n "$steps" "$work/metrics.jsonl" |
      sed 's/.*"tokens_per_second" *: *\([0-9.e+]*\).*/\1/' >> "$work/$ranks.rates"
  done
done
for ranks in 1 2; do
  sort -g "$work/$ranks.rates" | sed -n "$(((steps * rounds + 1) / 2))p" > "$work/$ranks.median"
done
paste "$work/1.median" "$work/2.median" |
  awk '{ printf "1 rank %.1f tokens/s, 2 ranks %.1f tokens/s: %.2f times\n", $1, $2, $2 / $1 }'
