#!/usr/bin/env python3
"""How well step times of this machine's processor are predicted: measured by `trireme calibrate`, priced by `plan`, run.

Rounds take turns, calibration and then every case, because the speed of a virtual machine changes within minutes; each
case has the median of its steps' times in a round against the prediction from that round's file. Two cores and nothing
else running are assumed.

  TRIREME   the command (default build/release/trireme)
  ROUNDS    default 3
  CASES     a regular expression on the cases' names (default all)
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRIREME = os.environ.get("TRIREME", os.path.join(ROOT, "build/release/trireme"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
DATA = "/usr/share/common-licenses/GPL-3"
GPT2 = "examples/models/gpt2-124m.yaml"
SMALL = "examples/quickstart/model.yaml"
SMALL_RUN = ["--batch", "32", "--microbatch", "4"]

# name: model, precision, ranks, steps, arguments of plan
CASES = {
    "gpt2 T64 fp32": (GPT2, "fp32", 1, 4, ["--batch", "4", "--seq", "64", "--microbatch", "4"]),
    "gpt2 T256 fp32": (GPT2, "fp32", 1, 3, ["--batch", "4", "--seq", "256", "--microbatch", "4"]),
    "gpt2 T256 bf16": (GPT2, "bf16", 1, 3, ["--batch", "4", "--seq", "256", "--microbatch", "4"]),
    "gpt2 T64 fp32 4 microbatches": (GPT2, "fp32", 1, 3, ["--batch", "8", "--seq", "64", "--microbatch", "2"]),
    "gpt2 T256 fp32 dp 2": (GPT2, "fp32", 2, 3, ["--batch", "8", "--seq", "256", "--microbatch", "4", "--dp", "2"]),
    "gpt2 T256 fp32 tp 2": (GPT2, "fp32", 2, 3, ["--batch", "4", "--seq", "256", "--microbatch", "4", "--tp", "2"]),
    "gpt2 T64 fp32 pp 2": (GPT2, "fp32", 2, 3, ["--batch", "8", "--seq", "64", "--microbatch", "2", "--pp", "2"]),
    "small fp32": (SMALL, "fp32", 1, 12, SMALL_RUN),
    "small bf16": (SMALL, "bf16", 1, 12, SMALL_RUN),
    "small fp32 tp 2": (SMALL, "fp32", 2, 12, [*SMALL_RUN, "--tp", "2"]),
    "small fp32 pp 2": (SMALL, "fp32", 2, 12, [*SMALL_RUN, "--pp", "2"]),
    "small fp32 dp 2": (SMALL, "fp32", 2, 12, [*SMALL_RUN, "--dp", "2"]),
}


def trireme(*args):
    return subprocess.run([TRIREME, *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def predicted_and_measured(work, case, clusters):
    """Seconds of a step: of the plan priced for this machine, and the median of the run's steps but the first two."""
    model, precision, ranks, steps, arguments = case
    train, plan, bundle, metrics = (os.path.join(work, name) for name in ("train.yaml", "plan.yaml", "bundle", "m.jsonl"))
    sequence = [] if "--seq" in arguments else ["--seq", "128"]
    with open(train, "w") as file:
        file.write(f"precision: {precision}\nlearning_rate: 3e-4\nweight_decay: 0.1\nclip_norm: 1.0\n")
    pins = [f"--{axis}=1" for axis in ("tp", "pp", "dp") if f"--{axis}" not in arguments]
    answer = json.loads(trireme("plan", "--model", os.path.join(ROOT, model), "--cluster", clusters[ranks], "--gpus", str(ranks),
                                "--recompute", "none", "--train", train, *arguments, *sequence, *pins, "--json", "-o", plan))
    subprocess.run(["rm", "-rf", bundle, metrics], check=True)
    trireme("compile", "--model", os.path.join(ROOT, model), "--plan", plan, "-o", bundle)
    trireme("run", bundle, "--data", DATA, "--steps", str(steps + 2), "--threads", "1", "--metrics", metrics)
    with open(metrics) as file:
        seconds = [json.loads(line)["seconds"] for line in file][2:]
    return answer["estimate"]["stepSeconds"], statistics.median(seconds)


def main():
    names = [name for name in CASES if re.search(os.environ.get("CASES", ""), name)]
    found = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as work:
        clusters = {ranks: os.path.join(work, f"{ranks}.yaml") for ranks in sorted({CASES[name][2] for name in names})}
        for _ in range(ROUNDS):
            for ranks, path in clusters.items():
                trireme("calibrate", "--ranks", str(ranks), "-o", path)
            for name in names:
                found[name].append(predicted_and_measured(work, CASES[name], clusters))
    print(f"{'case':<30} {'predicted':>10} {'measured':>10}   error, median and of each round")
    errors = []
    for name in names:
        each = [100 * (predicted / measured - 1) for predicted, measured in found[name]]
        errors.append(statistics.median(each))
        print(f"{name:<30} {statistics.median(p for p, _ in found[name]):>8.3f} s {statistics.median(m for _, m in found[name]):>8.3f} s"
              f"   {errors[-1]:+6.1f} %   " + " ".join(f"{error:+.1f}" for error in each))
    print(f"mean size {statistics.mean(map(abs, errors)):.1f} %, worst {max(errors, key=abs):+.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
