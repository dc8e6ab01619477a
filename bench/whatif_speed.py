#!/usr/bin/env python3
"""How long `trireme whatif` takes for 1,024 points of GPT-3 175B: 16 numbers of H100s, 8 networks, 8 batches.

    bench/whatif_speed.py [--trireme build/release/trireme] [--threads 2]

Limit: 30 s on two cores. CPU seconds divided by the threads are what an idle machine would take.
"""
import argparse
import resource
import subprocess
import time

POINTS = ["--gpus", "256..4096:256", "--inter-node", "100..800:100 Gbit/s", "--batch", "1536..3328:256"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/release/trireme")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    begin = time.monotonic()
    done = subprocess.run(
        [options.trireme, "whatif", "--model", "gpt3-175b", "--cluster", "dgx-h100", "--stack", "megatron-core",
         "--seq", "2048", "--threads", str(options.threads), "--csv", *POINTS],
        check=True, capture_output=True, text=True)
    wall = time.monotonic() - begin
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    points = len(done.stdout.splitlines()) - 1
    print(f"{points} points: {wall:.1f} s, {cpu:.1f} CPU s, {cpu / options.threads:.1f} s on {options.threads} cores; "
          f"{usage.ru_maxrss / 1024:.0f} MiB; limit 30 s")


if __name__ == "__main__":
    main()
