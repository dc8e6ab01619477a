#!/usr/bin/env python3
"""How long `trireme plan` searches, on one core: median of several runs, the most memory, and how many
candidates a second it bounded or dropped.

    bench/planner_speed.py [--trireme build/release/trireme] [--runs 5]
"""
import argparse
import json
import os
import statistics
import subprocess

CASES = [
    # name, model, cluster, stack, devices, batch, sequence, precision, seconds to stay under
    ("GPT-3 175B, 1,024 A100", "examples/models/gpt3-175b.yaml", "dgx-a100", "megatron-core", 1024, 1536, 2048, "bf16", 0.1),
    ("1T, 3,072 A100", "examples/models/gpt-1008b.yaml", "dgx-a100", "megatron-core", 3072, 3072, 2048, "bf16", 0.3),
    ("Llama 3 405B, 16,384 H100", "examples/models/llama3-405b.yaml", "dgx-h100", "megatron-core", 16384, 2048, 8192, "bf16", 1),
    ("10T, 131,072 H100", "bench/ten_trillion.yaml", "dgx-h100", "megatron-core", 131072, 16384, 4096, "bf16", 5),
    ("GPT-3 175B, 1,024 A100", "examples/models/gpt3-175b.yaml", "dgx-a100", "trireme", 1024, 1536, 2048, "bf16", 0.1),
    ("1T, 3,072 A100", "examples/models/gpt-1008b.yaml", "dgx-a100", "trireme", 3072, 3072, 2048, "bf16", 0.3),
    ("Llama 3 405B, 16,384 H100", "examples/models/llama3-405b.yaml", "dgx-h100", "trireme", 16384, 2048, 8192, "bf16", 1),
    ("10T, 131,072 H100", "bench/ten_trillion.yaml", "dgx-h100", "trireme", 131072, 16384, 4096, "bf16", 5),
]


def run_once(trireme, case):
    name, model, cluster, stack, devices, batch, sequence, precision, _ = case
    with subprocess.Popen(
        [trireme, "plan", "--model", model, "--cluster", f"examples/clusters/{cluster}.yaml",
         "--stack", f"examples/stacks/{stack}.yaml", "--gpus", str(devices), "--batch", str(batch),
         "--seq", str(sequence), "--precision", precision, "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        out = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{name} failed")
    return json.loads(out), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{'case':<28}{'stack':<15}{'search s':>10}{'limit':>7}{'CPU s':>8}{'MiB':>6}{'candidates':>12}{'per s':>12}")
    for case in CASES:
        runs = [run_once(options.trireme, case) for _ in range(options.runs)]
        seconds = statistics.median(plan["searchSeconds"] for plan, _, _ in runs)
        cpu = statistics.median(cpu for _, cpu, _ in runs)
        candidates = sum(runs[0][0]["certificate"]["pruned"].values()) + runs[0][0]["certificate"]["costed"]
        print(f"{case[0]:<28}{case[3]:<15}{seconds:>10.3f}{case[-1]:>7}{cpu:>8.3f}{runs[0][2]:>6.0f}{candidates:>12}"
              f"{candidates / seconds:>12.0f}")


if __name__ == "__main__":
    main()
