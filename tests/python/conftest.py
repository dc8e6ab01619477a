"""What the tests of the Python package share. TRIREME_BINARY is the command of the same build."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command() -> Callable[..., tuple[dict[str, Any], str]]:
    """Runs the command with --json: (what it printed, its error message)."""

    def run(*arguments: str) -> tuple[dict[str, Any], str]:
        line = [os.environ["TRIREME_BINARY"], *arguments, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        return json.loads(done.stdout or "{}"), "".join(errors).removeprefix("error: ")

    return run
