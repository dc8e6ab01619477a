#!/usr/bin/env python3
"""Random questions to `trireme plan` about shipped models and clusters: how long the searches take (CPU time)
and how far their certificates are from zero. With several programs each gets the same questions, in turns.

    bench/random_queries.py [--queries 60] [--seed 1] [--stack trireme] [--trireme PROGRAM]...
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


def draw(models, clusters):
    return {"model": random.choice(models), "cluster": random.choice(clusters),
            "gpus": random.choice([16, 32, 64, 128, 256, 512, 1024]),
            "batch": random.choice([64, 128, 256, 512, 1024, 2048]), "seq": random.choice([1024, 2048, 4096])}


def ask(trireme, stack, query):
    """The answer and its CPU seconds; None where there is no plan (nothing fits, or too long a sequence)."""
    words = [trireme, "plan", "--stack", stack, "--json", "--top", "1"]
    for name, value in query.items():
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
    parser.add_argument("--trireme", action="append")
    options = parser.parse_args()
    programs = options.trireme or [str(EXAMPLES.parent / "build/release/trireme")]
    random.seed(options.seed)
    models, clusters = names("models"), names("clusters")
    answers = []  # of every query, by program
    while len(answers) < options.queries:
        query = draw(models, clusters)
        got = [ask(program, options.stack, query) for program in programs]
        if all(got):
            answers.append(got)
    print(f"{options.queries} queries, stack {options.stack}   median     mean  9 of 10     most")
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


if __name__ == "__main__":
    main()
