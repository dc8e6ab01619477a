#!/usr/bin/env python3
"""Writes cost_models/VALIDATION.md: how far predictions are from published step times.

    TRIREME_REFERENCE=<folder with the measurement files> cost_models/validate.py [--check] <trireme binary>

Runs `trireme plan --predict` over every file of training runs and sums up by family. A row was
held out of every fit if the MD5 of its id, as a number, is a multiple of three. --check writes
nothing: it exits with 1 if the committed file is another, with 77 without measurement files.
"""
import csv
import difflib
import hashlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["megatron_sc21", "vtrain_multi", "vtrain_single", "zero_bubble", "nemo_launcher_a100",
         "alpa", "llm_foundry", "torchtitan_fsdp", "dgxc_benchmarking", "nemo_perf", "simumax",
         "megatron_core_h100"]
# Names, targets (mean absolute error, %), which rows.
FAMILIES = [
    ("SC21 tables 1 and 2", 4, lambda r: r["file"] == "megatron_sc21" and "A100" in r["gpu"]),
    ("of these, table 1", None, lambda r: r["file"] == "megatron_sc21" and "Table 1" in r["source"]),
    ("A100, 64-512 GPUs (vTrain)", 6, lambda r: r["file"] == "vtrain_multi"),
    ("A100, 2-8 GPUs (vTrain)", 8, lambda r: r["file"] == "vtrain_single"),
    ("zero bubble, 1F1B and interleaved", 5,
     lambda r: r["file"] == "zero_bubble" and not r["schedule"].startswith("ZB")),
    ("zero bubble, ZB-1p and ZB-2p", None, lambda r: r["schedule"].startswith("ZB")),
    ("H100 bf16 (NeMo)", 8, lambda r: dense_h100(r) and not eight_bits(r)),
    ("H100 fp8 (NeMo)", 11, lambda r: dense_h100(r) and eight_bits(r)),
    ("FSDP, A100 and H100", 7, lambda r: r["file"] in ("llm_foundry", "torchtitan_fsdp")),
    ("V100", 12, lambda r: "V100" in r["gpu"]),
    ("B200 (SimuMax)", None, lambda r: r["file"] == "simumax"),
    ("GB200, GB300, B200 (NeMo)", None,
     lambda r: r["file"] in ("nemo_perf", "dgxc_benchmarking") and "H100" not in r["gpu"]),
    ("NeMo on A100, 2022", None, lambda r: r["file"] == "nemo_launcher_a100"),
    ("everything", None, lambda r: True),
]
# What others reach on the same rows: mean absolute error, and order within sweeps.
OTHERS = {
    "of these, table 1":
        "SimuMax 7.4, Calculon 13.9 (published microbatch and interleaving)",
    "A100, 64-512 GPUs (vTrain)":
        "SimuMax 10.9, vTrain 14.7 (own claim), Calculon 15.3 (57.6 at tp 16)",
    "A100, 2-8 GPUs (vTrain)": "vTrain 8.4 (own claim), Calculon 39",
}
OTHERS_ORDER = {
    "A100, 64-512 GPUs (vTrain)": "Calculon: Spearman 0.43 to 0.97 by model",
    "A100, 2-8 GPUs (vTrain)": "Calculon: regret 12.7",
}


def eight_bits(row):
    return "fp8" in row["precision"].lower()


def dense_h100(row):
    return row["file"] in ("nemo_perf", "dgxc_benchmarking") and "H100" in row["gpu"]


def held_out(row):
    return int(hashlib.md5(row["id"].encode()).hexdigest(), 16) % 3 == 0


def measured(row):
    if row["iter_time_s"]:
        return float(row["iter_time_s"])
    if not (row["tokens_per_s_per_gpu"] and row["global_batch"] and row["gpus"]):
        return None
    tokens = float(row["global_batch"]) * float(row["seq"])
    return tokens / (float(row["tokens_per_s_per_gpu"]) * float(row["gpus"]))


def predicted_rows(binary, files):
    rows = []
    for name, path in files:
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch) / "out.csv"
            subprocess.run([binary, "plan", "--predict", path, "-o", out],
                           check=True, stdout=subprocess.DEVNULL)
            with open(out, newline="") as file:
                reader = csv.DictReader(file)
                columns = reader.fieldnames[:reader.fieldnames.index("predicted_s")]
                for row in reader:
                    row["file"] = name
                    row["columns"] = columns
                    rows.append(row)
    return [r for r in rows if r["scored"] == "1" and measured(r)]


def parts_of(rows):
    return (("all", rows), ("fitted", [r for r in rows if not held_out(r)]),
            ("held out", [r for r in rows if held_out(r)]))


def report_on(binary, rows):
    """What `trireme plan --predict --json` says of these rows alone."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "rows.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0]["columns"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        run = subprocess.run([binary, "plan", "--predict", path, "--json"], check=True,
                             capture_output=True, text=True)
    return json.loads(run.stdout)


def error(row):
    return 100 * (float(row["predicted_s"]) / measured(row) - 1)


def summary(rows):
    if not rows:
        return "| - | - | - | - | - |"
    errors = [error(r) for r in rows]
    sizes = sorted(map(abs, errors))
    n = len(sizes)
    median = (sizes[(n - 1) // 2] + sizes[n // 2]) / 2
    p90 = sizes[min(n - 1, int(0.9 * n))]
    return (f"| {n} | {sum(sizes) / n:.1f} | {median:.1f} | {p90:.1f} | {sum(errors) / n:+.1f} |")


def table(rows):
    lines = ["| family | target | rows | n | mean abs | median abs | 90th pct | signed mean "
             "| others, mean abs |", "|---|--:|---|--:|--:|--:|--:|--:|---|"]
    for name, target, belongs in FAMILIES:
        goal = f"{target} %" if target else ""
        for label, part in parts_of([r for r in rows if belongs(r)]):
            first = label == "all"
            lines.append(f"| {name if first else ''} | {goal if first else ''} | {label} "
                         f"{summary(part)} {OTHERS.get(name, '') if first else ''} |")
    return lines


def order(binary, rows):
    lines = ["| family | rows | sweeps | layouts | Spearman, mean | least | regret, mean % | most % "
             "| others |", "|---|---|--:|--:|--:|--:|--:|--:|---|"]
    for name, _, belongs in FAMILIES:
        for label, part in parts_of([r for r in rows if belongs(r)]):
            found = report_on(binary, part)["overall"]["order"] if part else {"sweeps": 0}
            if not found["sweeps"]:
                continue
            first = label == "all"
            correlations = [f"{found[key]:.2f}" if found["ranked"] else "-"
                            for key in ("meanSpearman", "leastSpearman")]
            regrets = [f"{100 * found[key]:.1f}" for key in ("meanRegret", "mostRegret")]
            lines.append(f"| {name if first else ''} | {label} | {found['sweeps']} "
                         f"| {found['layouts']} | {' | '.join(correlations + regrets)} "
                         f"| {OTHERS_ORDER.get(name, '') if first else ''} |")
    return lines


def intervals(rows):
    lines = ["| family | rows | n | within, % | half-width, % | over mean error |",
             "|---|---|--:|--:|--:|--:|"]
    for name, _, belongs in FAMILIES:
        own = [r for r in rows if belongs(r) and r["low_s"]]
        for label, part in (("all", own), ("held out", [r for r in own if held_out(r)])):
            if not part:
                continue
            n = len(part)
            within = sum(float(r["low_s"]) <= measured(r) <= float(r["high_s"]) for r in part)
            half = sum((float(r["high_s"]) - float(r["low_s"])) / 2 / measured(r) for r in part) / n
            mean = sum(abs(error(r)) for r in part) / n
            lines.append(f"| {name if label == 'all' else ''} | {label} | {n} "
                         f"| {100 * within / n:.0f} | {100 * half:.1f} | {100 * half / mean:.1f} |")
    return lines


def peak_gib(row):
    found = re.search(r"peak_mem_(gib|gb|mib)=([\d.]+)", row["notes"])
    scale = {"gib": 1, "gb": 1e9 / 2**30, "mib": 1 / 1024}
    return float(found[2]) * scale[found[1]] if found else None


def memory(rows):
    lines = ["| rows | n | mean abs % | worst % | |", "|---|--:|--:|--:|---|"]
    groups = {}
    for row in rows:
        if peak_gib(row) and row["predicted_mem_gib"]:
            off = 100 * (float(row["predicted_mem_gib"]) / peak_gib(row) - 1)
            groups.setdefault(f"{row['file']}, {row['stack']}", []).append((off, row["id"]))
    for name, found in groups.items():
        worst = max(found, key=lambda e: abs(e[0]))
        mean = sum(abs(e[0]) for e in found) / len(found)
        lines.append(f"| {name} | {len(found)} | {mean:.1f} | {worst[0]:+.1f} | {worst[1]} |")
    return lines


def other_sources(rows):
    lines = ["| source | rows | n | mean abs | signed mean | worst | within interval |",
             "|---|---|--:|--:|--:|--:|--:|"]
    groups = {}
    for row in rows:
        group = re.sub(r"( \d+\.\d|,|\(| pull ).*", "", row["source"])
        groups.setdefault((group, row["model"], row["gpu"]), []).append(row)
    for (source, model, gpu), part in [*groups.items(), (("all", "", ""), rows)]:
        errors = [error(r) for r in part]
        n = len(errors)
        spans = [r for r in part if r["low_s"]]  # of stacks with an interval
        within = sum(float(r["low_s"]) <= measured(r) <= float(r["high_s"]) for r in spans)
        lines.append(f"| {source} | {model}{', ' if model else ''}{gpu} | {n} "
                     f"| {sum(map(abs, errors)) / n:.1f} | {sum(errors) / n:+.1f} "
                     f"| {max(errors, key=abs):+.1f} "
                     f"| {f'{within} of {len(spans)}' if spans else '-'} |")
    return lines


# Profiles of one program, whose intervals of others are the same.
PROGRAMS = ["megatron-core", "nemo", "torchtitan", "megatron-deepspeed"]


def spans(rows):
    lines = ["| profiles | n | the shortest span that holds nine of ten, % from the prediction |",
             "|---|--:|--:|"]
    for program in PROGRAMS:
        off = sorted(100 * (measured(r) / float(r["predicted_s"]) - 1) for r in rows
                     if r["profile"] == program or r["profile"].startswith(program + "-"))
        most = math.ceil(0.9 * len(off))
        _, low, high = min((off[i + most - 1] - off[i], off[i], off[i + most - 1])
                           for i in range(len(off) - most + 1))
        lines.append(f"| {program} | {len(off)} | {low:+.1f} to {high:+.1f} |")
    return lines


def worst(rows, count=25):
    lines = ["| row | model | GPUs | measured s | predicted s | error % |", "|---|---|--:|--:|--:|--:|"]
    for row in sorted(rows, key=lambda r: -abs(error(r)))[:count]:
        lines.append(f"| {row['id']} | {row['model']} | {row['gpus']} | {measured(row):.3g} "
                     f"| {float(row['predicted_s']):.3g} | {error(row):+.1f} |")
    return lines


def generated(binary, folder):
    rows = predicted_rows(binary, [(name, f"{folder}/{name}.csv") for name in FILES])
    done = [r for r in rows if r["predicted_s"]]
    skipped = {}
    for row in rows:
        if not row["predicted_s"]:
            skipped.setdefault(row["skipped_because"], []).append(row["id"])
    fits = sum(r["fits"] in ("1", "true") for r in done)
    head, tail = (HERE / "validation_text.md").read_text().split("<!-- tables -->\n")
    lines = ["## Step time", "", *table(done), "",
             f"{len(done)} of {len(rows)} scored rows with a measured time were predicted; "
             f"{fits} of them ({100 * fits / len(done):.1f} %) are said to fit.", ""]
    lines += [f"- skipped, {len(ids)}: {why} ({', '.join(ids[:3])}...)"
              for why, ids in skipped.items()]
    lines += ["", "## Order within sweeps", "", *order(binary, done)]
    lines += ["", "## Intervals", "", *intervals(done)]
    others = predicted_rows(binary, [("other_runs", HERE / "validation/other_runs.csv")])
    lines += ["", "## Other sources", "",
              "Runs of `validation/other_runs.csv`, to which nothing was fitted: what to expect of "
              "software, sizes and settings that are not above.", "", *other_sources(others), "",
              "What their times were, by the program that they ran; its profiles' intervals of "
              "others are these (`faster_elsewhere`, `slower_elsewhere`):", "", *spans(others)]
    recipes = predicted_rows(binary, [("recipe_runs", HERE / "validation/recipe_runs.csv")])
    lines += ["", "## More runs of the same recipes", "",
              "Runs of `validation/recipe_runs.csv`: NVIDIA's own, as those of NeMo above, of which "
              "the files there have other rows. Nothing was fitted to them.", "",
              *other_sources(recipes)]
    lines += ["", "## Peak memory, where published", "", *memory(done + others), "",
              "## The largest errors", "", *worst(done), ""]
    return head + "\n".join(lines) + "\n" + tail


def differences(committed, now):
    return "\n".join(difflib.unified_diff(committed.splitlines(), now.splitlines(), "VALIDATION.md",
                                          "what validate.py writes", lineterm="", n=0))


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    checks = len(arguments) < len(sys.argv) - 1
    folder = os.environ.get("TRIREME_REFERENCE", "").rstrip("/")
    if checks and not folder:
        print("skipped: TRIREME_REFERENCE names no folder of measurement files")
        sys.exit(77)
    if len(arguments) != 1 or not folder:
        sys.exit(__doc__)
    if not os.path.exists(f"{folder}/vtrain_multi.csv"):
        folder += "/measurements"
    text = generated(arguments[0], folder)
    file = HERE / "VALIDATION.md"
    if not checks:
        file.write_text(text)
    elif text != file.read_text():
        sys.exit("cost_models/VALIDATION.md is not what cost_models/validate.py writes:\n" +
                 differences(file.read_text(), text))


if __name__ == "__main__":
    main()
