#!/usr/bin/env python3
"""Runs the commands of a page as they are written, and compares their output with what it shows.

    pages_test.py <trireme> <source folder> <page> [--write]

    ```console        commands behind "$ ", and what they print below; "..." stands for any lines
    ```sh run.sh      a file of that name for the commands below
    <!-- not run: why -->    before a block of commands: it is left out

All blocks of a page share a folder, which has the `examples` of the source folder. A command has to
succeed, unless it shows "error: ". Times that were measured, versions and where long lines break are
not compared. --write puts what the commands print into the page, as many lines as it shows.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w*) ?(.*)$")
MEASURED = [(re.compile(r"\bin \d[\d.]* (ns|us|ms|s|min)\b"), "in TIME"),
            (re.compile(r"\btrireme \d+\.\d+\.\d+( \([^)]*\))?"), "trireme VERSION")]
# A long line goes on behind its name's column, a message of a terminal at its begin.
BROKEN = re.compile(r"\n {14,}(?=\S)")


class Block:
    def __init__(self, kind, argument, runs, first):
        self.kind, self.argument, self.runs, self.first = kind, argument, runs, first
        self.lines = []

    def commands(self):
        """(number of the line, command, lines that it shows)"""
        found = []
        for place, line in enumerate(self.lines):
            if found and found[-1][1].endswith("\\\n") and not found[-1][2]:
                found[-1][1] += line + "\n"
            elif line.startswith("$ "):
                found.append([self.first + place, line[2:] + "\n", []])
            elif found:
                found[-1][2].append(line)
            else:
                raise SystemExit(f"line {self.first + place}: output without a command")
        return found


def blocks_of(lines):
    blocks, block, runs = [], None, True
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if block is not None and line == "```":
            blocks.append(block)
            block, runs = None, True
        elif block is not None:
            block.lines.append(line)
        elif fence:
            block = Block(fence[1], fence[2], runs, number + 1)
        elif line.strip():
            runs = not line.startswith("<!-- not run: ")
    return blocks


def plain(lines):
    message = next((i for i, line in enumerate(lines) if line.startswith("error: ")), len(lines))
    lines = lines[:message] + [" ".join(lines[message:])] * (message < len(lines))
    text = BROKEN.sub(" ", "\n".join(lines))
    for pattern, name in MEASURED:
        text = pattern.sub(name, text)
    return text.split("\n")


def matches(shown, printed):
    """Whether the lines are the same; "..." is any number of them."""
    pattern = "".join(".*" if line == "..." else re.escape(line + "\n") for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed), re.DOTALL) is not None


def shortened(shown, printed):
    """What is printed, with "..." where the page has it: as many lines before and behind. With several
    of them what is shown stays: that has to be written by hand."""
    if "..." not in shown:
        return printed
    if shown.count("...") > 1:
        return shown
    head, tail = shown.index("..."), len(shown) - 1 - shown.index("...")
    return printed[:head] + ["..."] + (printed[-tail:] if tail else [])


def run(command, folder, environment):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.returncode, done.stdout.rstrip("\n").split("\n") if done.stdout else []


def check(block, folder, environment):
    """Returns the failures, and as (first, last, lines) what the page should show."""
    failures, changes = [], []
    for number, command, shown in block.commands():
        code, printed = run(command, folder, environment)
        fails = any(line.startswith("error: ") for line in shown)
        if (code != 0) == fails and matches(plain(shown), plain(printed)):
            continue
        difference = difflib.unified_diff(plain(shown), plain(printed), "shown", "printed", lineterm="")
        failures.append(f"line {number + 1}, ended with {code}: {command}" + "\n".join(difference))
        first = number + command.count("\n")
        changes.append((first, first + len(shown), shortened(shown, printed)))
    return failures, changes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["trireme", "source", "page"]:
        parser.add_argument(name)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    page = os.path.join(arguments.source, arguments.page)
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    failures, changes, commands = [], [], 0
    with tempfile.TemporaryDirectory(prefix="trireme-page-") as folder:
        programs = os.path.join(folder, ".bin")
        os.mkdir(programs)
        os.symlink(os.path.abspath(arguments.trireme), os.path.join(programs, "trireme"))
        os.symlink(os.path.abspath(os.path.join(arguments.source, "examples")), os.path.join(folder, "examples"))
        environment = dict(os.environ, PATH=programs + os.pathsep + os.environ["PATH"], LC_ALL="C.UTF-8")
        for block in blocks_of(lines):
            if block.kind == "console" and block.runs:
                found = check(block, folder, environment)
                failures += found[0]
                changes += found[1]
                commands += len(block.commands())
            elif block.argument:
                with open(os.path.join(folder, block.argument), "w", encoding="utf-8") as file:
                    file.write("\n".join(block.lines) + "\n")
    print("\n\n".join(failures))
    print(f"{arguments.page}: {commands} commands, {len(failures)} failures")
    if arguments.write:
        for first, last, shown in reversed(changes):
            lines[first:last] = shown
        with open(page, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
    return 1 if failures or commands == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
