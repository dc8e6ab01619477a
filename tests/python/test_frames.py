"""Answers as pandas frames."""

from __future__ import annotations

import subprocess
import sys

import pytest

import trireme

SMALL = {"batch": 32, "seq": 1024, "stack": "megatron-core"}


def test_a_plan_has_a_row_for_itself_and_each_runner_up() -> None:
    best = trireme.plan("gpt2-124m", "dgx-a100", gpus=8, top=3, **SMALL)  # type: ignore[arg-type]
    frame = best.to_frame()
    assert len(frame) == 1 + len(best.runners_up) == 3
    assert frame["tp"][0] == best.plan.tp
    assert frame["slower_seconds"].is_monotonic_increasing
    assert frame["slower_seconds"][1] == pytest.approx(best.runners_up[0].slower_seconds)
    parts = best.estimate.to_frame()
    assert parts["seconds"].sum() == pytest.approx(best.estimate.step_seconds)
    assert parts["percent"].sum() == pytest.approx(100)
    assert best.estimate.memory_to_frame()["bytes"].sum() == best.estimate.memory_total_bytes


# 4 devices of a node of 8 less than there are: the point has no plan, and stays in the frame.
def test_a_sweep_has_a_row_for_each_point() -> None:
    frame = trireme.whatif(
        "gpt2-124m", "dgx-a100", gpus=[8, 16], minus_nodes=[0, 1], tokens="1B", **SMALL  # type: ignore[arg-type]
    ).to_frame()
    assert list(frame["fits"]) == [True, True, False, True]
    assert frame["wall_seconds"][0] > frame["wall_seconds"][1]
    assert frame["bubble_seconds"].notna().sum() == 3
    assert "cost_usd" not in frame  # no price was asked for


def test_without_pandas_everything_else_works() -> None:
    code = """
import sys
sys.modules["pandas"] = None
import trireme
best = trireme.plan("gpt2-124m", "dgx-a100", gpus=8, batch=32, seq=1024)
try:
    best.to_frame()
except ImportError as error:
    assert "pip install pandas" in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
