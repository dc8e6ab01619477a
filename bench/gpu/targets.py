"""Targets of what bench/gpu measures, and what became of each.

What could not be measured is neither met nor missed. Scripts exit with a sum: 0 if all targets were met, MISSED if one
was missed, NOT_MEASURED if something could not be measured; so 12 says both. 1 is an error, with which nothing was
measured.
"""
import math
import os
import subprocess

MISSED, NOT_MEASURED = 4, 8

RATIO = 1.15  # PyTorch's time of a step over ours, of every model
MFU = {"gpt2-124m": 0.45, "gpt2-1.5b": 0.55}
PREDICTION = 0.07  # of a predicted step, either way


def is_nothing(value):
    return value is None or math.isnan(value)


def text_of(text, value, target):
    return "" if is_nothing(value) else text.format(value, target)


class Verdicts:
    def __init__(self):
        self.met, self.missed, self.not_measured = [], [], []

    def of(self, what, is_met, measured=""):
        """"met", "missed" or, if `is_met` is None, "not measured". `measured`: text, if it is missed."""
        if is_met is None:
            self.not_measured.append(what)
            return "not measured"
        if is_met:
            self.met.append(what)
            return "met"
        self.missed.append(f"{what} ({measured})" if measured else what)
        return "missed"

    def at_least(self, what, value, target, text="{:.3f} of {:g}"):
        """The same of a number, which may be None."""
        return self.of(what, None if is_nothing(value) else value >= target, text_of(text, value, target))

    def at_most(self, what, value, target, text="{:.3f} of {:g}"):
        return self.of(what, None if is_nothing(value) else value <= target, text_of(text, value, target))

    def lacks(self, what):
        """Something without a target that could not be measured."""
        self.not_measured.append(what)

    def line(self):
        number = len(self.met) + len(self.missed)
        text = f"Targets: {len(self.met)} of {number} that were measured are met."
        if self.missed:
            text += f" **Missed**: {', '.join(self.missed)}."
        if self.not_measured:
            text += f" **Not measured**: {', '.join(self.not_measured)}."
        return text

    def exit_code(self):
        return (MISSED if self.missed else 0) + (NOT_MEASURED if self.not_measured else 0)


def gpu_is_here():
    """As tests/gpu/run asks."""
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0"):
        return True
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0
    except OSError:
        return False


NO_GPU = "error: no NVIDIA GPU here (no /dev/nvidia0, and nvidia-smi finds none): nothing was measured"


class Failed(Exception):
    """Of a command, by its last line."""


def output_of(command, seconds, env=None):
    """What the command prints. Failed: it ends with an error, or takes longer than so many seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        raise Failed(f"{os.path.basename(command[0])} has not ended within {seconds:g} s") from None
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines()
        raise Failed(lines[-1] if lines else f"{os.path.basename(command[0])}: exit code {done.returncode}")
    return done.stdout
