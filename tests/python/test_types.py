"""The examples run, and types say what is true."""

from __future__ import annotations

import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import trireme
from trireme import _core

EXAMPLES = sorted((ROOT / "examples/python").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example))
    assert capsys.readouterr().out


def test_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


# Every answer is compared with what the page shows.
def test_the_page_for_python_shows_what_is_printed() -> None:
    text = re.sub(r"^```.*$", "", (ROOT / "docs/python.md").read_text(), flags=re.MULTILINE)
    page = doctest.DocTestParser().get_doctest(text, {}, "docs/python.md", "docs/python.md", 0)
    assert len(page.examples) > 10
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(page, out=printed.append).failed == 0, "".join(printed)


def test_types_are_strict() -> None:
    package = ROOT / "python" / "trireme"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(package), *map(str, EXAMPLES)],
        env={"MYPYPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_names_what_the_module_has() -> None:
    stub = (Path(trireme.__file__).parent / "_core.pyi").read_text()
    names = {name for name in vars(_core) if not name.startswith("_")}
    assert set(re.findall(r"^(?:def )?(\w+)[(:]", stub, re.MULTILINE)) == names


# Units stand in the documentation of what has none in its name.
def test_everything_public_is_documented() -> None:
    for name in trireme.__all__:
        if name != "__version__":
            assert (getattr(trireme, name).__doc__ or "").strip(), name
