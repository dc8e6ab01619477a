#!/usr/bin/env python3
"""tests/gpu/run on a machine that is made up: commands that do as they are told stand before the real ones.

    run_test.py <source folder>
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.abspath(sys.argv[1])

# Each writes down that it was called. What they do otherwise is in the environment.
STUBS = {
    "nvidia-smi": 'case $1 in -L) ;; *) echo "NVIDIA X900, 80 GiB, 999.1, 1980 MHz" ;; esac',
    "nvcc": "echo 'Cuda compilation tools, release 13.0, V13.0.88'",
    "ldconfig": "echo 'libcublasLt.so.13 => /lib/libcublasLt.so.13'",
    "cmake": """
case $1 in
  --version) echo 'cmake version 3.30.1' ;;
  -S) mkdir -p "$4"; echo "CMAKE_CXX_COMPILER:FILEPATH=/bin/echo" > "$4/CMakeCache.txt" ;;
  --build)
    if [[ ${BUILD_FAILS-} ]]; then echo 'x.cpp:1: error: no such thing'; exit 1; fi
    printf '#!/bin/sh\\necho "trireme 0.1.0 $*"\\necho "trireme $1" >> "%s"\\n' "$CALLS" > "$2/trireme"
    cp "$2/trireme" "$2/gpu_test"; chmod +x "$2/trireme" "$2/gpu_test" ;;
esac""",
    "ctest": """
echo '      Start 1: gpu/Alpha.A'
echo '1/3 Test #1: gpu/Alpha.A ...................   Passed    0.01 sec'
echo '2/3 Test #2: gpu/Beta.B/gpt  # GetParam() = "gpt" ....***Skipped   0.02 sec'
if [[ ${CTEST_HANGS-} ]]; then sleep 60 & echo $! > "$CTEST_HANGS"; wait; fi
if [[ ${CTEST_FAILS-} ]]; then
  echo '3/3 Test #3: gpu/Gamma.C ..................***Failed    0.03 sec'
  echo '/x/gamma.cpp:7: Failure'
  echo '67% tests passed, 1 tests failed out of 3'
  exit 8
fi
echo '3/3 Test #3: gpu/Gamma.C ..................   Passed    0.03 sec'
echo '100% tests passed, 0 tests failed out of 3'""",
    "compute-sanitizer": """
echo '========= COMPUTE-SANITIZER'
case " ${SANITIZER-} " in
  *" $2=unsupported "*)
    echo '========= Error: Device not supported. Please refer to the documentation.'; exit 1 ;;
esac
echo '[ RUN      ] GpuKernels.One'
echo '[       OK ] GpuKernels.One (12 ms)'
echo '[ RUN      ] GpuKernels.Two'
case " ${SANITIZER-} " in
  *" $2=hangs "*) exec sleep 60 ;;
  *" $2=runs_nothing "*) exit 0 ;;
  *" $2=crashes "*) exit 139 ;;
  *" $2=finds "*) echo '========= Invalid __global__ write of size 4 bytes' ;;
esac
echo '[  SKIPPED ] GpuKernels.Two (0 ms)'
echo '[==========] 2 tests from 1 test suite ran. (12 ms total)'
echo '[  PASSED  ] 1 test.'
echo '[  SKIPPED ] 1 test, listed below:'
case " ${SANITIZER-} " in *" $2=finds "*) echo '========= ERROR SUMMARY: 1 error'; exit 99 ;; esac
echo '========= ERROR SUMMARY: 0 errors'""",
}
BENCH = {
    "run": 'echo "## Training speed"; echo "noise" >&2; exit "${TRAINING_EXIT:-0}"',
    "attention": 'echo "## Attention"',
    "memory": 'echo "## Memory"',
}


def expect(condition, *what):
    if not condition:
        sys.exit("FAILED: " + "\n".join(str(part) for part in what))


def script(path, name, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{text}\n')
    os.chmod(path, 0o755)


class Machine:
    """A folder like an unpacked archive, and what was called in it."""

    def __init__(self, folder):
        self.root = os.path.join(folder, "root")
        stubs = os.path.join(folder, "bin")
        for part in ("tests/gpu", "bench/gpu", "bundles/bench-a.bundle"):
            os.makedirs(os.path.join(self.root, part))
        for name in ("run", "sanitized", "sanitized_tests.txt"):
            shutil.copy(os.path.join(SOURCE, "tests/gpu", name), os.path.join(self.root, "tests/gpu"))
        os.makedirs(stubs)
        for name, text in STUBS.items():
            script(os.path.join(stubs, name), name, text)
        for name, text in BENCH.items():
            script(os.path.join(self.root, "bench/gpu", name), name, text)
        self.calls_file = os.path.join(folder, "calls")
        self.environment = {"PATH": f"{stubs}:/usr/bin:/bin", "CALLS": self.calls_file, "EVERY": "0.1"}
        self.report = os.path.join(self.root, "gpu-report.md")

    def start(self, *arguments, **environment):
        open(self.calls_file, "w", encoding="utf-8").close()
        return subprocess.Popen([os.path.join(self.root, "tests/gpu/run"), *arguments], text=True,
                                env={**self.environment, **environment}, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *arguments, **environment):
        """Exit code and what was printed."""
        process = self.start(*arguments, **environment)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def calls(self):
        """What was asked of the stubs in the last run, in order, but for questions about the machine."""
        lines = open(self.calls_file, encoding="utf-8").read().splitlines()
        kept = [line for line in lines if not re.match(r"nvidia-smi|nvcc|ldconfig|.* ?--version", line)]
        return [" ".join(line.split()[:3]) if line.startswith("compute") else " ".join(line.split()[:2])
                for line in kept]

    def text(self):
        return open(self.report, encoding="utf-8").read()

    def result(self, part):
        found = re.findall(rf"^\| {re.escape(part)} \| (.*) \| \d* ?\|$", self.text(), re.M)
        expect(len(found) == 1, f"{part}: {found}", self.text())
        return found[0]

    def expect_results(self, **expected):
        for part, result in expected.items():
            expect(re.fullmatch(result, self.result(part)), f"{part}: not {result}", self.text())


BUILD = ["cmake -S", "cmake --build"]
SANITIZE = [f"compute-sanitizer --tool {tool}" for tool in ("memcheck", "racecheck", "synccheck")]
BENCHES = ["trireme calibrate", "run", "attention build/gpu/gpu_test", "memory build/gpu/gpu_test"]


def stages_come_in_order(machine):
    code, output = machine.run()
    expect(code == 0, output)
    expect(machine.calls() == BUILD + ["ctest --test-dir"] + SANITIZE, machine.calls())
    machine.expect_results(build="passed, .* jobs", tests="100% tests passed, .* out of 3, 1 skipped, seed .*",
                           memcheck="passed: 2 tests, 1 skipped", training="not run", memory="not run")
    for line in ("| GPU | NVIDIA X900, 80 GiB, up to 1980 MHz |", "| driver | 999.1 |", "| CUDA | 13.0 |",
                 "| gpu/Alpha.A | Passed | 0.01 |", "| gpu/Beta.B/gpt | Skipped | 0.02 |",
                 "| sources | trireme 0.1.0 --version |"):
        expect(line in machine.text().splitlines(), line, machine.text())
    expect("--gtest_filter=Types/GpuKernels.*:" in open(machine.calls_file, encoding="utf-8").read())
    code, output = machine.run("--bench", "other.md")
    expect(code == 0, output)
    expect(machine.calls() == BUILD + ["ctest --test-dir"] + SANITIZE + BENCHES, machine.calls())
    expect("## Training speed" in open(os.path.join(machine.root, "other.md"), encoding="utf-8").read())
    expect(os.path.isdir(os.path.join(machine.root, "other-results")))


def later_runs_add_to_the_report(machine):
    code, output = machine.run("--only", "tests")
    expect(code == 1 and "--only build comes first" in output, output)
    code, output = machine.run("--only", "build")
    expect(code == 0 and machine.calls() == BUILD, output, machine.calls())
    machine.expect_results(build="passed.*", tests="not run", racecheck="not run")
    code, output = machine.run("--only", "racecheck,tests")
    expect(code == 0, output)
    expect(machine.calls() == ["ctest --test-dir", SANITIZE[1]], machine.calls())
    machine.expect_results(build="passed.*", tests="100%.*", memcheck="not run", racecheck="passed.*")
    # Some models now, others in the next run.
    for models in ("small", "large huge"):
        code, output = machine.run("--only", "training,attention", MODELS=models)
        expect(code == 0, output)
        called = open(machine.calls_file, encoding="utf-8").read().splitlines()
        expect(called[-2:] == [f"run {models}", f"attention build/gpu/gpu_test {models}"], called)
    machine.expect_results(**{"tests": "100%.*", "training-small": "passed", "training-large huge": "passed",
                              "attention-small": "passed", "attention-large huge": "passed"})
    machine.run("--only", "build")  # of other sources, perhaps
    machine.expect_results(build="passed.*", tests="not run", racecheck="not run", training="not run")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def a_run_that_is_cut_leaves_its_report(machine):
    sleeper = os.path.join(machine.root, "sleeper")  # the process that ctest's stub waits for
    process = machine.start(CTEST_HANGS=sleeper)
    deadline = time.time() + 30
    while not (os.path.exists(machine.report) and "gpu/Beta.B/gpt" in machine.text()):
        expect(time.time() < deadline and process.poll() is None, "no report of tests that ended")
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with open(sleeper, encoding="utf-8") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    machine.expect_results(build="passed.*", tests=r"\*\*began .*, and has not ended\*\*", memcheck="not run")
    code, output = machine.run("--only", "memcheck")
    expect(code == 0, output)
    machine.expect_results(build="passed.*", tests=r"\*\*began .*, and has not ended\*\*", memcheck="passed.*")
    expect("| gpu/Alpha.A | Passed | 0.01 |" in machine.text(), machine.text())
    # One that is asked to end, with what it started.
    os.remove(sleeper)
    process = machine.start("--only", "tests", CTEST_HANGS=sleeper)
    while not os.path.exists(sleeper) or not os.path.getsize(sleeper):
        expect(time.time() < deadline and process.poll() is None, "no ctest")
        time.sleep(0.05)
    process.terminate()
    expect(process.wait(30) == 130, process.returncode)
    process.communicate()
    with open(sleeper, encoding="utf-8") as file:
        pid = int(file.read())
    while is_running(pid):
        expect(time.time() < deadline, "what ctest had started goes on")
        time.sleep(0.05)
    machine.expect_results(tests=r"\*\*interrupted\*\*")


def what_failed_is_named(machine):
    code, output = machine.run(CTEST_FAILS="1")
    expect(code == 1, output)
    expect(machine.calls()[-1] == SANITIZE[2], machine.calls())
    machine.expect_results(tests=r"\*\*FAILED: 67% tests passed, 1 tests failed out of 3, .*")
    expect("/x/gamma.cpp:7: Failure" in machine.text(), machine.text())
    code, output = machine.run(BUILD_FAILS="1")
    expect(code == 1 and machine.calls() == BUILD, output, machine.calls())
    machine.expect_results(build=r"\*\*FAILED: .*build.log\*\*", tests="not run")
    expect("x.cpp:1: error: no such thing" in machine.text(), machine.text())


def sanitizers_time_out_fail_or_are_not_there(machine):
    code, output = machine.run(SANITIZER="memcheck=hangs racecheck=finds synccheck=unsupported", SANITIZE_TIMEOUT="1")
    expect(code == 1, output)
    expect(machine.calls()[-3:] == SANITIZE, machine.calls())
    machine.expect_results(memcheck=r"\*\*timeout after 1 s: 1 tests had ended\*\*",
                           racecheck=r"\*\*FAILED: exit code 99, .*/racecheck.log\*\*",
                           synccheck="not run: Error: Device not supported.*")
    for part in ("memcheck: the last test that began is GpuKernels.Two.", "Invalid __global__ write of size 4 bytes"):
        expect(part in machine.text(), machine.text())
    # What cannot be had fails a run only if it was asked for by name.
    expect(machine.run(SANITIZER="synccheck=unsupported")[0] == 0, machine.text())
    expect(machine.run("--only", "sanitize", SANITIZER="synccheck=unsupported")[0] == 1, machine.text())
    for fault, result in (("crashes", "FAILED: exit code 139"), ("runs_nothing", "FAILED: no test ran")):
        code, output = machine.run("--only", "memcheck", SANITIZER=f"memcheck={fault}")
        expect(code == 1, fault, output)
        machine.expect_results(memcheck=rf"\*\*{result}, .*")
    expect(machine.run(SANITIZE="0")[0] == 0 and SANITIZE[0] not in machine.calls(), machine.calls())


def a_benchmark_that_fails_stops_no_other(machine):
    machine.run("--only", "build")
    for exit_code in ("1", "3"):
        code, output = machine.run("--only", "bench", TRAINING_EXIT=exit_code)
        expect(code == 1, output)
        expect(machine.calls() == BENCHES, machine.calls())
        machine.expect_results(calibration="passed", attention="passed", memory="passed",
                               training=rf"\*\*FAILED: bench/gpu/run ended with exit code {exit_code}\*\*")
        expect("noise" in machine.text() and "## Memory" in machine.text(), machine.text())
    for exit_code, fails, said in (("4", 1, r"\*\*targets missed\*\*"),
                                   ("8", 0, "passed, but for what could not be measured"),
                                   ("12", 1, r"\*\*targets missed, and something could not be measured\*\*")):
        expect(machine.run("--only", "bench", TRAINING_EXIT=exit_code)[0] == fails, exit_code)
        machine.expect_results(training=said)
    expect(machine.run("--only", "training", TRAINING_EXIT="8")[0] == 1)
    os.remove(os.path.join(machine.root, "bench/gpu/attention"))
    expect(machine.run("--only", "bench")[0] == 0)
    expect("noise" not in machine.text(), machine.text())
    machine.expect_results(training="passed", attention="not run: no bench/gpu/attention")
    expect(machine.run("--only", "attention")[0] == 1)


def wrong_command_lines_are_refused(machine):
    for arguments in (["--only"], ["--only", "test"], ["--only", "build,"], ["--fast"], ["a.md", "b.md"]):
        code, output = machine.run(*arguments)
        expected = 0 if arguments == ["--only", "build,"] else 2
        expect(code == expected and ("usage" in output) == (code == 2), arguments, output)


def main():
    for test in (stages_come_in_order, later_runs_add_to_the_report, a_run_that_is_cut_leaves_its_report,
                 what_failed_is_named, sanitizers_time_out_fail_or_are_not_there,
                 a_benchmark_that_fails_stops_no_other, wrong_command_lines_are_refused):
        with tempfile.TemporaryDirectory() as folder:
            test(Machine(folder))
        print(f"passed: {test.__name__.replace('_', ' ')}")


if __name__ == "__main__":
    main()
