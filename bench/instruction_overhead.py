#!/usr/bin/env python3
"""What the interpreter adds to each instruction: a GPT so small that there is next to nothing to compute.

Two figures from the trace of one rank: the gap between two instructions of the compute stream (with the clock reading
that tracing adds), and the whole time of the shortest compute instruction, its kernel included. Their sum bounds the
overhead per instruction. A third, without a trace: the step over its instructions, all kernels included.
"""
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRIREME = os.environ.get("TRIREME", os.path.join(ROOT, "build/release/trireme"))
STEPS = 20
MODEL = """name: tiny
family: gpt
layers: 24
hidden_size: 8
heads: 1
ffn_size: 8
vocab_size: 256
max_sequence: 4
tied_embeddings: true
"""


def trireme(*args):
    subprocess.run([TRIREME, *args], check=True, stdout=subprocess.DEVNULL)


def main():
    with tempfile.TemporaryDirectory() as work:
        path = lambda name: os.path.join(work, name)
        for name, text in (("model.yaml", MODEL), ("train.yaml", "precision: fp32\nlearning_rate: 3e-4\n")):
            with open(path(name), "w") as file:
                file.write(text)
        trireme("plan", "--model", path("model.yaml"), "--cluster", os.path.join(ROOT, "examples/clusters/local.yaml"),
                "--gpus", "1", "--batch", "16", "--seq", "4", "--microbatch", "1", "--recompute", "none",
                "--train", path("train.yaml"), "-o", path("plan.yaml"))
        trireme("compile", "--model", path("model.yaml"), "--plan", path("plan.yaml"), "-o", path("bundle"))
        run = ["run", path("bundle"), "--data", "/usr/share/common-licenses/GPL-3", "--steps", str(STEPS), "--threads", "1"]
        trireme(*run, "--trace", path("trace.json"))
        trireme(*run, "--metrics", path("metrics.jsonl"))
        with open(path("trace.json")) as file:
            events = json.load(file)["traceEvents"]
        with open(path("metrics.jsonl")) as file:
            seconds = [json.loads(line)["seconds"] for line in file]

    # The first steps warm up.
    events = [e for e in events if e["ph"] == "X" and e["tid"] == 0 and e["args"]["step"] > STEPS // 2]
    events.sort(key=lambda e: e["ts"])
    gaps, durations = [], collections.defaultdict(list)
    for event, following in zip(events, events[1:]):
        durations[event["name"]].append(event["dur"])
        if event["args"]["step"] == following["args"]["step"]:
            gaps.append(following["ts"] - event["ts"] - event["dur"])
    shortest = min(statistics.median(values) for name, values in durations.items() if "." in name)
    instructions = len(events) / (STEPS - STEPS // 2)
    step = statistics.median(seconds[STEPS // 2:])
    print(f"gap between instructions    {statistics.mean(gaps):.3f} us")
    print(f"shortest compute            {shortest:.3f} us, its kernel included")
    print(f"step over instructions      {step * 1e6 / instructions:.3f} us "
          f"({instructions:.0f} instructions, all kernels included)")
    sys.exit(0 if statistics.mean(gaps) + shortest < 2 else 1)


main()
