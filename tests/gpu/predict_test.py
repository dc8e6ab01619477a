#!/usr/bin/env python3
"""bench/gpu/predict on measurements that are made up: its predictions are those of the calibrated file, and its verdicts
those of the steps beside them.

    predict_test.py <trireme> <source folder>
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TRIREME, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PREDICT = os.path.join(SOURCE, "bench/gpu/predict")
MODEL = "gpt2-124m"
PRODUCTS = ["matmul", "matmul_grad_input", "matmul_grad_weight"]
SIZES = [256, 512, 768, 1024, 2048, 4096]


def measurements(flops):
    """Of a GPU whose products and attention reach `flops` FLOP/s, with launches of 2 us."""
    kernels = []
    for kind in ("bf16", "f32"):
        for op in PRODUCTS:
            for tokens in SIZES:
                kernels.append({"op": op, "type": kind, "tokens": tokens, "outputs": 3 * tokens // 2, "inputs": 1024,
                                "seconds": 2e-6 + 2 * tokens * (3 * tokens // 2) * 1024 / flops})
        for op, products in (("attention", 2), ("attention_grad", 5)):
            for sequence in SIZES:
                for dropout in (0.0, 0.1):
                    blocks = sequence // 128
                    scores = 8 * 128 * 128 * blocks * (blocks + 1) / 2
                    kernels.append({"op": op, "type": kind, "sequence": sequence, "batch": 1, "heads": 8, "headSize": 64,
                                    "dropout": dropout, "headsPerGroup": 1, "seconds": 2e-6 + 2 * products * 64 * scores / flops})
    gpu = {"name": "NVIDIA X900", "capability": 90, "multiprocessors": 132, "driverVersion": 13000,
           "totalBytes": 80 << 30, "freeBytes": 79 << 30}
    streams = [{"stream": name, "bytes": 4e9, "seconds": 2e-3} for name in ("copy", "sum of squares", "AdamW")]
    return {"format": "trireme GPU measurements", "version": 2, "date": "2026-11-22", "trireme": "0.1.0", "gpu": gpu,
            "numGpus": 1, "launchSeconds": 2e-6, "kernels": kernels, "streams": streams, "transfers": []}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def expect(condition, *what):
    if not condition:
        sys.exit("FAILED: " + "\n".join(str(part) for part in what))


def write_steps(results, seconds):
    with open(os.path.join(results, f"{MODEL}.steps.json"), "w") as file:
        json.dump({"seconds": seconds}, file)


def predicted(results, flops, code=4, verdict="missed"):
    """Milliseconds of a step, which is expected to have the verdict."""
    with open(os.path.join(results, "gpus.json"), "w") as file:
        json.dump(measurements(flops), file)
    done = run(sys.executable, PREDICT, TRIREME, results, MODEL)
    expect(done.returncode == code, done.returncode, done.stdout, done.stderr)
    row = re.search(rf"^\| {MODEL} \| ([0-9.]+) \| ([0-9.]+) \| ([-+0-9.]+) % \| 7 % \| {verdict} \|$", done.stdout, re.M)
    expect(row, "no row of the model:", done.stdout)
    measured, expected, error = map(float, row.groups())
    expect(abs(error - 100 * (expected / measured - 1)) < 0.1, row.group(0))
    expect("| together | " in done.stdout, "no parts of the step:", done.stdout)
    return expected


def expect_verdicts(results, flops, expected):
    """7 % either way; the others of the four models were not measured."""
    for factor, code, verdict in ((1.075, 0, "met"), (0.935, 0, "met"), (1.08, 4, "missed"), (0.93, 4, "missed")):
        median = expected * factor / 1e3
        write_steps(results, [median / 2, median, 9 * median])
        predicted(results, flops, code, verdict)
    done = run(sys.executable, PREDICT, TRIREME, results)
    expect(done.returncode == 12, done.returncode, done.stdout)
    expect("| llama-1b | - | - | - | 7 % | not measured |" in done.stdout, done.stdout)
    expect("* llama-1b: no llama-1b.steps.json" in done.stdout, done.stdout)
    expect(f"Targets: 0 of 1 that were measured are met. **Missed**: step of {MODEL} (" in done.stdout, done.stdout)
    expect("**Not measured**: step of gpt2-350m, step of gpt2-1.5b, step of llama-1b." in done.stdout, done.stdout)
    write_steps(results, [expected / 1e3])
    done = run(sys.executable, PREDICT, TRIREME, results)
    expect(done.returncode == 8, done.returncode, done.stdout)


def main():
    with tempfile.TemporaryDirectory() as results:
        refused = run(sys.executable, PREDICT, TRIREME, results)
        expect(refused.returncode == 1 and "no MODEL.steps.json" in refused.stderr, refused.stderr)
        plan, trace = os.path.join(results, "plan.yaml"), os.path.join(results, f"{MODEL}.trace.json")
        made = run(os.path.join(SOURCE, "bench/gpu/plan"), TRIREME, MODEL, plan)
        expect(made.returncode == 0 and made.stdout == MODEL + "\n", made.stderr)
        simulated = run(TRIREME, "plan", "--check", plan, "--model", MODEL, "--cluster", "dgx-h200", "--trace", trace)
        expect(simulated.returncode == 0, simulated.stderr)
        write_steps(results, [10, 20, 90])
        fast, slow = predicted(results, 400e12), predicted(results, 100e12)
        # Products and attention of 32 sequences of 1024: 3 x 2 x 32768 x 124e6 FLOPs and more are 60 ms at 400
        # TFLOP/s and four times that at 100; the rest of the step is the same.
        expect(slow - fast > 3 * 60, "the step does not follow the measured rates:", fast, slow)
        expect(fast > 60, fast)
        expect_verdicts(results, 100e12, slow)
        write_steps(results, [])
        done = run(sys.executable, PREDICT, TRIREME, results, MODEL)
        expect(done.returncode == 8 and "| not measured |" in done.stdout, done.stdout)
        with open(os.path.join(results, "gpus.json"), "w") as file:
            file.write("{}")
        refused = run(sys.executable, PREDICT, TRIREME, results)
        expect(refused.returncode == 1 and "gpus.json" in refused.stderr, refused.stderr)
    print("passed")


main()
