#!/usr/bin/env python3
"""Random questions to `trireme plan` about shipped models and clusters: how long the searches take (CPU time)
and how far their certificates are from zero. With several programs each gets the same questions, in turns.

    bench/random_queries.py [--queries 60] [--seed 1] [--stack trireme] [--wide] [--trireme PROGRAM]...

--wide asks for what few people ask: few sequences, numbers of GPUs that divide nothing, pins, any stack. Times there
are the longest of all, and a search that hangs shows.
"""
import argparse
import json
import pathlib
import random
import resource
import statistics
import subprocess

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def names(kind):
    # `local` is a host with a rank or two.
    return sorted(path.stem for path in (EXAMPLES / kind).glob("*.yaml") if path.stem != "local")


WIDE_PINS = ["pp 2", "pp 8", "tp 2", "tp 3", "tp 5", "dp 1", "max-tp 4", "microbatch 2", "virtual-stages 3",
             "schedule interleaved", "schedule zb-h1", "recompute full"]


def draw(models, clusters, stacks):
    if stacks:
        query = {"model": random.choice(models), "cluster": random.choice(clusters),
                 "stack": random.choice(stacks),
                 "gpus": random.choice([1, 2, 3, 5, 6, 7, 8, 12, 16, 20, 24, 36, 40, 48, 60, 72, 96, 100, 120, 144, 200,
                                        256, 360, 500, 1000, 1024, 1536, 2048]),
                 "batch": random.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 30, 32, 48, 64, 96, 100, 128, 256, 1000]),
                 "seq": random.choice([512, 1000, 1024, 2048, 4095, 4096, 8192])}
        if random.random() < 0.3:
            query.update([random.choice(WIDE_PINS).split()])
        return query
    return {"model": random.choice(models), "cluster": random.choice(clusters),
            "gpus": random.choice([16, 32, 64, 128, 256, 512, 1024]),
            "batch": random.choice([64, 128, 256, 512, 1024, 2048]), "seq": random.choice([1024, 2048, 4096])}


def ask(trireme, stack, query):
    """The answer and its CPU seconds; None where there is no plan (nothing fits, or too long a sequence)."""
    words = [trireme, "plan", "--json", "--top", "1"]
    for name, value in ({"stack": stack} | query).items():
        words += [f"--{name}", str(value)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, cwd=EXAMPLES.parent)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        return None
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def spread(values):
    values = sorted(values)
    return f"{statistics.median(values):>9.4f}{statistics.mean(values):>9.4f}{values[len(values) * 9 // 10]:>9.4f}{values[-1]:>9.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stack", default="trireme")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--trireme", action="append")
    options = parser.parse_args()
    programs = options.trireme or [str(EXAMPLES.parent / "build/release/trireme")]
    random.seed(options.seed)
    models, clusters = names("models"), names("clusters")
    answers, longest = [], (0, {})  # of every query, by program; of the first one, with the query
    while len(answers) < options.queries:
        query = draw(models, clusters, names("stacks") if options.wide else None)
        got = [ask(program, options.stack, query) for program in programs]
        if all(got):
            answers.append(got)
            longest = max(longest, (got[0][1], query), key=lambda one: one[0])
    print(f"{options.queries} queries, stack {'any' if options.wide else options.stack}   median     mean  9 of 10     most")
    for i, program in enumerate(programs):
        print(program)
        print("  CPU seconds                " + spread([got[i][1] for got in answers]))
        proofs = [got[i][0]["certificate"] for got in answers]
        print("  gap of the certificate     " + spread([proof["gap"] for proof in proofs]))
        ofAll = [(proof.get("allCuts") or proof)["gap"] for proof in proofs]
        print("  of all cuts                " + spread(ofAll))
        steps = [got[i][0]["estimate"]["stepSeconds"] / got[0][0]["estimate"]["stepSeconds"] for got in answers]
        if i > 0:
            print("  steps, of the first one's  " + spread(steps))
    print("the longest: " + " ".join(f"--{name} {value}" for name, value in longest[1].items()))


if __name__ == "__main__":
    main()
