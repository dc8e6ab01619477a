"""Searches leave other threads alone and can be interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

import trireme


# A thread that only counts gets on while the search runs; with the interpreter locked it would stand still.
def test_other_threads_run_during_a_search() -> None:
    counts: list[float] = []
    done = threading.Event()

    def count() -> None:
        while not done.wait(0.005):
            counts.append(time.monotonic())

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    trireme.whatif("gpt3-175b", "dgx-h100", gpus="64,512", batch=1536, seq=2048, threads=1)
    end = time.monotonic()
    done.set()
    thread.join()
    during = [t for t in counts if begin < t < end]
    assert len(during) > 0.1 * (end - begin) / 0.005


SWEEP = 'trireme.whatif("gpt3-175b", "dgx-h100", gpus="8..80000:8", batch=1536, seq=2048)'
SEARCH = """
for _ in range(1000):
    trireme.plan("gpt3-175b", "dgx-h100", gpus=4096, batch=1536, seq=2048, explain=True)
"""


@pytest.mark.parametrize("work", [SWEEP, SEARCH])
def test_ctrl_c_stops_a_search(work: str) -> None:
    code = f"""
import trireme
print("ready", flush=True)
try:
    {work.strip().replace(chr(10), chr(10) + "    ")}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert output == "interrupted\n"
    assert process.returncode == 0
    assert time.monotonic() - begin < 20
