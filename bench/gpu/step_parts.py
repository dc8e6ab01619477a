#!/usr/bin/env python3
"""Where the time of a training step goes, beside what the planner's cost model says of each part.

  bench/gpu/step_parts.py MEASURED SIMULATED    traces: of `trireme run --trace`, and of `trireme compile --simulate` or
                                              `trireme plan --trace`

Both have an event per instruction; a part is the instructions of one name ("layer.backward.0") of a rank's compute stream.
The last measured step counts. Times are milliseconds, of rank 0.
"""
import json
import sys

COMPUTE, RANK = 0, 0  # tid, pid: the first stream of the first rank


def events_of_last_step(path):
    """ValueError: there is none."""
    with open(path) as file:
        events = [
            event
            for event in json.load(file)["traceEvents"]
            if event["ph"] == "X" and event["pid"] == RANK and event["tid"] == COMPUTE
        ]
    if not events:
        raise ValueError(f"{path}: no event of rank {RANK}'s compute stream")
    last = max(event["args"]["step"] for event in events)
    return [event for event in events if event["args"]["step"] == last]


def parts(path):
    """{name: milliseconds}, in the order of a step, with what lies between instructions last."""
    events = events_of_last_step(path)
    times = {}
    for event in events:
        times[event["name"]] = times.get(event["name"], 0) + event["dur"] / 1e3
    begin = min(event["ts"] for event in events)
    end = max(event["ts"] + event["dur"] for event in events)
    times["between instructions"] = max((end - begin) / 1e3 - sum(times.values()), 0)
    return times


def table(measured_path, simulated_path):
    """Markdown."""
    measured, simulated = parts(measured_path), parts(simulated_path)
    whole = sum(measured.values())
    lines = ["| part | measured, ms | of the step | simulated, ms | ratio |", "|---|--:|--:|--:|--:|"]
    for name in [*measured, *(name for name in simulated if name not in measured)]:
        ms, expected = measured.get(name, 0), simulated.get(name, 0)
        ratio = f"{ms / expected:.2f}" if expected >= 1e-6 else "-"
        lines.append(f"| {name} | {ms:.3f} | {100 * ms / whole:.1f} % | {expected:.3f} | {ratio} |")
    expected = sum(simulated.values())
    lines.append(f"| together | {whole:.3f} | 100.0 % | {expected:.3f} | {whole / expected:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: bench/gpu/step_parts.py MEASURED SIMULATED")
    try:
        print(table(sys.argv[1], sys.argv[2]))
    except ValueError as error:
        sys.exit(f"error: {error}")
