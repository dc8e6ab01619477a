#!/usr/bin/env python3
"""The scripts of bench/gpu with stand-ins for what they run: a trireme, a Python with torch, an nvidia-smi and a
gpu_test that print what they are told. No GPU, no PyTorch and no build is needed.

    bench_test.py <source folder> [gpu_test]    gpu_test: of a build, which takes attention's times on an emulated GPU
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(sys.argv[1])
BENCH = os.path.join(SOURCE, "bench/gpu")
sys.path.insert(0, BENCH)
import shapes  # noqa: E402

STEPS, WARM_UP = 4, 5

# Stand-ins are told by one file: of each model and side what every turn does, seconds of a step or an error.
FAKE = '''#!/usr/bin/env -S python3 -S -E
import array, json, os, sys
folder = {folder!r}
def turn_of(model, side):
    path = os.path.join(folder, f"{{model}}.{{side}}.turns")
    turn = int(open(path).read()) if os.path.exists(path) else 0
    open(path, "w").write(str(turn + 1))
    turns = json.load(open(os.path.join(folder, "told.json")))[model].get(side, [1.0])
    return turns[min(turn, len(turns) - 1)]
def fail_if(told):
    if isinstance(told, str):
        sys.stderr.write("some warning\\n" + told + "\\n")
        sys.exit(1)
def steps_of(told, number):  # in no order; the mean is not the median
    return [told] * (number // 2 + 1) + [3 * told] * (number - number // 2 - 1)
'''

TRIREME = FAKE + '''
args = sys.argv[1:]
assert args[0] == "run", args
model = os.path.basename(args[1])[len("bench-"):-len(".bundle")]
assert os.path.isdir(args[1]), args[1]
flags = dict(zip(args[2::2], args[3::2]))
assert flags["--tokens"] == "int32", flags
tokens = array.array("i")
tokens.frombytes(open(flags["--data"], "rb").read())
assert len(set(tokens[:1000])) > 900 and min(tokens) >= 0, "tokens"
number = int(flags["--steps"])
if "--trace" in flags:
    told = turn_of(model, "trace")
    fail_if(told)
    events = [{{"ph": "X", "pid": 0, "tid": 0, "name": name, "ts": 1000 * number + at, "dur": 1000 * told * ms,
               "args": {{"step": step}}}}
              for step in (1, 2) for name, at, ms in (("layer.forward.0", 0, 1 / step), ("norm", 5000, 2 / step))]
    json.dump({{"traceEvents": events}}, open(flags["--trace"], "w"))
else:
    told = turn_of(model, "trireme")
    fail_if(told)
    warm = {warm_up}
    with open(flags["--metrics"], "x") as file:
        for step, seconds in enumerate([100 * told] * warm + steps_of(told, number - warm)):
            file.write(json.dumps({{"step": step + 1, "loss": 1, "seconds": seconds}}) + "\\n")
'''

# As python3: `-c` asks for the version, else it is a benchmark of a shape.
PYTHON = FAKE + '''
if sys.argv[1] == "-c":
    if {version!r} is None:
        sys.exit("ModuleNotFoundError: No module named 'torch'")
    print({version!r})
    sys.exit()
assert sys.argv[1].endswith("/pytorch_models.py"), sys.argv
shape, warm_up, steps = json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
model = {{(12, 768): "gpt2-124m", (24, 1024): "gpt2-350m", (48, 1600): "gpt2-1.5b", (16, 2048): "llama-1b"}}[tuple(shape[1:3])]
assert warm_up == {warm_up} and shape[8] in (8, 16, 32), sys.argv
told = turn_of(model, "torch")
fail_if(told)
print("a line of torch's")
print(json.dumps({{"seconds": steps_of(told, steps)}}))
'''


def expect(condition, *what):
    if not condition:
        sys.exit("FAILED: " + "\n".join(str(part) for part in what))


def write(path, text, mode=0o644):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


class Machine:
    """A folder with stand-ins. `told`: {model: {"trireme": turns, "torch": turns, "trace": turns}}."""

    def __init__(self, folder, told, version="2.9.1", gpu=True):
        self.folder, self.results = folder, os.path.join(folder, "results")
        values = {"folder": folder, "version": version, "warm_up": WARM_UP}
        self.trireme = write(os.path.join(folder, "trireme"), TRIREME.format(**values), 0o755)
        self.python = write(os.path.join(folder, "python"), PYTHON.format(**values), 0o755)
        tools = os.path.join(folder, "tools")
        os.makedirs(tools)
        script = '#!/bin/sh\n[ "$1" = -L ] && ' + ("echo GPU 0: X900" if gpu else "exit 9") + "\n"
        write(os.path.join(tools, "nvidia-smi"), script, 0o755)
        write(os.path.join(folder, "told.json"), json.dumps(told))
        for model in told:
            bundle = os.path.join(folder, "bundles", f"bench-{model}.bundle")
            os.makedirs(bundle)
            write(os.path.join(bundle, "simulated.json"), json.dumps({"traceEvents": [
                {"ph": "X", "pid": 0, "tid": 0, "name": "layer.forward.0", "ts": 0, "dur": 250.0, "args": {"step": 0}},
                {"ph": "X", "pid": 0, "tid": 1, "name": "of another stream", "ts": 0, "dur": 9e9, "args": {"step": 0}}]}))
        self.environment = {**os.environ, "PATH": tools + os.pathsep + os.environ["PATH"], "TRIREME": self.trireme,
                            "PYTHON": self.python, "BUNDLES": os.path.join(folder, "bundles"), "STEPS": str(STEPS),
                            "ROUNDS": "2", "TURN_SECONDS": "60", "RESULTS": self.results}

    def bench(self, *models):
        return subprocess.run([sys.executable, os.path.join(BENCH, "run"), *models], capture_output=True, text=True,
                              env=self.environment)


def seconds_for(model, share):
    """Of a step with that MFU."""
    shape = shapes.MODELS[model]
    return shape[7] * shape[8] * shapes.mfu(shape, 1) / share


def rows_of(done):
    """{model: cells} of the table of training speed."""
    rows = {}
    for line in done.stdout.split("## Where")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 12 and cells[0] not in ("model",):
            rows[cells[0].split(",")[0]] = cells
    return rows


def bench(told, *models, **options):
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, told, **options)
        done = machine.bench(*models)
        results = {}
        if os.path.isdir(machine.results):
            for name in os.listdir(machine.results):
                with open(os.path.join(machine.results, name)) as file:
                    results[name] = json.load(file)
        return done, rows_of(done), results


def told_of(share, ratio, **more):
    """Every model reaches that MFU, and PyTorch takes `ratio` as long."""
    told = {}
    for model in shapes.MODELS:
        seconds = seconds_for(model, share)
        told[model] = {"trireme": [seconds], "torch": [ratio * seconds], "trace": [1.0], **more.get(model, {})}
    return told


def expect_code(done, code):
    expect(done.returncode == code, f"exit code {done.returncode}, expected {code}:", done.stdout, done.stderr)


def all_are_met():
    done, rows, results = bench(told_of(0.56, 1.16))
    expect_code(done, 0)
    expect(list(rows) == list(shapes.MODELS), rows)
    expect("Targets: 6 of 6 that were measured are met.\n" in done.stdout, done.stdout)
    expect("PyTorch 2.9.1." in done.stdout and "issed" not in done.stdout and "ot measured" not in done.stdout, done.stdout)
    for model, wanted, verdict in (("gpt2-124m", "45 %", "met"), ("gpt2-350m", "-", "-"), ("gpt2-1.5b", "55 %", "met"),
                                   ("llama-1b", "-", "-")):
        cells = rows[model]
        expect(cells[3] == "56.00 %" and cells[4:6] == [wanted, verdict], cells)
        expect(cells[8] == f"{56 / 1.16:.2f} %" and cells[9:] == ["1.160", "1.15", "met"], cells)
        steps = results[f"{model}.steps.json"]["seconds"]  # of two turns, none that warms up
        expect(len(steps) == 2 * STEPS and max(steps) < 4 * min(steps), steps)
    # Medians: 3 of 4 steps of a turn, so 6 of 8, take this long, and the others three times as long.
    milliseconds = 1e3 * seconds_for("gpt2-124m", 0.56)
    expect(rows["gpt2-124m"][1] == f"{milliseconds:.2f}", rows["gpt2-124m"], milliseconds)
    expect(rows["gpt2-124m"][2] == f"{32768 / milliseconds * 1e3:.0f}", rows["gpt2-124m"])
    # Of the traces the last step: 0.5 ms of the layer, which the cost model says takes 0.25, and 1 ms of the norm 5 ms
    # after the layer began; 4.5 ms lie between them.
    for line in ("| layer.forward.0 | 0.500 | 8.3 % | 0.250 | 2.00 |", "| norm | 1.000 | 16.7 % | 0.000 | - |",
                 "| between instructions | 4.500 | 75.0 % | 0.000 | - |", "| together | 6.000 | 100.0 % | 0.250 | 24.00 |"):
        expect(line in done.stdout, line, done.stdout)
    expect(len(results) == 8 and "traceEvents" in results["llama-1b.trace.json"], results.keys())


def missed_is_not_hidden():
    done, rows, _ = bench(told_of(0.54, 1.16))  # MFU of 55 % at 1.5B alone
    expect_code(done, 4)
    expect(rows["gpt2-1.5b"][4:6] == ["55 %", "missed"] and rows["gpt2-124m"][5] == "met", rows)
    expect("Targets: 5 of 6 that were measured are met. **Missed**: MFU of gpt2-1.5b (54.00 % of 55 %).\n" in done.stdout,
           done.stdout)
    expect("### gpt2-1.5b" in done.stdout, "no table of parts:", done.stdout)
    done, rows, _ = bench(told_of(0.56, 1.14))
    expect_code(done, 4)
    expect([cells[11] for cells in rows.values()] == ["missed"] * 4, rows)
    done, rows, _ = bench(told_of(0.44, 1.2), "gpt2-124m", "gpt2-350m")
    expect_code(done, 4)
    expect(list(rows) == ["gpt2-124m", "gpt2-350m"] and rows["gpt2-124m"][5] == "missed", rows)


def without_pytorch_the_ratio_is_not_measured():
    done, rows, _ = bench(told_of(0.56, 1.16), version=None)
    expect_code(done, 8)
    expect("has no torch): Trireme alone." in done.stdout, done.stdout)
    expect(all(cells[6:] == ["-", "-", "-", "-", "1.15", "not measured"] for cells in rows.values()), rows)
    expect("Targets: 2 of 2 that were measured are met. **Not measured**: ratio of gpt2-124m, " in done.stdout, done.stdout)
    done, rows, _ = bench(told_of(0.44, 1.16), version=None)
    expect_code(done, 12)
    expect(rows["gpt2-124m"][5] == "missed" and rows["gpt2-124m"][11] == "not measured", rows)


def a_side_that_fails_is_noted():
    done, rows, results = bench(told_of(0.56, 1.16, **{"gpt2-350m": {"trireme": ["error: out of memory"]},
                                                       "gpt2-1.5b": {"torch": ["CUDA error"]}}))
    expect_code(done, 8)
    expect(rows["gpt2-350m"][1:4] == ["-"] * 3 and rows["gpt2-350m"][6] != "-", rows)
    expect(rows["gpt2-350m"][9:] == rows["gpt2-1.5b"][9:] == ["-", "1.15", "not measured"], rows)
    expect(rows["gpt2-1.5b"][5] == "met", rows)
    expect("* gpt2-350m, Trireme, turn 2: error: out of memory\n" in done.stdout, done.stdout)
    expect("* gpt2-1.5b, PyTorch, turn 1: CUDA error\n" in done.stdout, done.stdout)
    expect("gpt2-350m.steps.json" not in results and "gpt2-1.5b.steps.json" in results, results.keys())
    # One turn of two: what there is has its verdict, and the loss is told.
    seconds = seconds_for("gpt2-124m", 0.56)
    done, rows, results = bench(told_of(0.56, 1.16, **{"gpt2-124m": {"trireme": ["error: a hang", seconds]}}), "gpt2-124m")
    expect_code(done, 8)
    expect(rows["gpt2-124m"][5] == "met" and rows["gpt2-124m"][11] == "met", rows)
    expect("**Not measured**: turn 1 of gpt2-124m by Trireme." in done.stdout, done.stdout)
    expect(len(results["gpt2-124m.steps.json"]["seconds"]) == STEPS, results)
    # Parts alone.
    done, rows, _ = bench(told_of(0.56, 1.16, **{"gpt2-124m": {"trace": ["error: no trace"]}}), "gpt2-124m")
    expect_code(done, 8)
    expect("### gpt2-124m\n\nNot measured: error: no trace\n" in done.stdout, done.stdout)
    expect("**Not measured**: parts of gpt2-124m." in done.stdout, done.stdout)
    # A time that cannot be.
    done, rows, _ = bench(told_of(0.56, 1.16, **{"gpt2-124m": {"trireme": [0.0]}}), "gpt2-124m")
    expect_code(done, 8)
    expect("Trireme, turn 1: a step of 0 s" in done.stdout, done.stdout)


def a_turn_that_hangs_ends():
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, told_of(0.56, 1.16))
        write(machine.trireme, "#!/bin/sh\nexec sleep 100\n", 0o755)
        machine.environment["TURN_SECONDS"] = "1"
        done = machine.bench("gpt2-124m")
        expect_code(done, 8)
        expect("Trireme, turn 2: trireme has not ended within 1 s" in done.stdout, done.stdout)


def nothing_is_measured_without_a_gpu():
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/nvidia0"):
        return
    done, rows, results = bench(told_of(0.56, 1.16), gpu=False)
    expect_code(done, 1)
    expect("no NVIDIA GPU here" in done.stderr and not rows and not results, done.stderr)


def what_is_not_there_is_refused():
    done, _, _ = bench(told_of(0.56, 1.16), "gpt5")
    expect_code(done, 1)
    expect("no model gpt5; there are gpt2-124m, " in done.stderr, done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, {})
        os.remove(machine.trireme)
        done = machine.bench()
        expect_code(done, 1)
        expect("is not there: build it" in done.stderr, done.stderr)


def step_parts_need_events():
    with tempfile.TemporaryDirectory() as folder:
        empty = write(os.path.join(folder, "trace.json"), '{"traceEvents": []}')
        done = subprocess.run([sys.executable, os.path.join(BENCH, "step_parts.py"), empty, empty], capture_output=True,
                              text=True)
        expect_code(done, 1)
        expect(done.stderr == f"error: {empty}: no event of rank 0's compute stream\n", done.stderr)


# A line of memory, or a failure of the bundle whose name has "bad".
GPU_TEST = '''#!/usr/bin/env python3
import os, sys
assert "--gtest_filter=GpuMemoryUse.OfTheBundleOfTheEnvironment" in sys.argv, sys.argv
mib = 2**20
if "worse" in os.environ["TRIREME_MEMORY_OF"]:
    sys.exit(3)
print('memory: {"arenas": %d, "without_graphs": %d, "with_graphs": %d, "graph_nodes": 512, "estimate": %d}'
      % (100 * mib, 110 * mib, 111 * mib, 140 * mib))
if "bad" in os.environ["TRIREME_MEMORY_OF"]:
    print("memory_test.cpp:95: Failure")
    print("Expected: (use.withGraphs) <= (use.estimate)")
    sys.exit(1)
'''


def memory_is_a_row_per_bundle():
    with tempfile.TemporaryDirectory() as folder:
        test = write(os.path.join(folder, "gpu_test"), GPU_TEST, 0o755)
        memory = [sys.executable, os.path.join(BENCH, "memory"), test]
        done = subprocess.run([*memory, "some/good.bundle/"], capture_output=True, text=True)
        expect_code(done, 0)
        expect("| good | 100.0 | 111.0 | 11.0 | 10.0 | 1.0 | 512 | 2.0 | 40.0 | met |\n" in done.stdout, done.stdout)
        done = subprocess.run([*memory, "good.bundle", "bad.bundle", "worse.bundle"], capture_output=True, text=True)
        expect_code(done, 12)
        expect("| bad | 100.0 |" in done.stdout and "| 40.0 | missed |" in done.stdout, done.stdout)
        expect("| worse | - |" in done.stdout and "| - | not measured |" in done.stdout, done.stdout)
        expect("Targets: 1 of 2 that were measured are met. **Missed**: memory of bad. **Not measured**: memory of worse.\n"
               in done.stdout, done.stdout)
        expect("* bad: Expected: (use.withGraphs) <= (use.estimate)\n" in done.stdout, done.stdout)
        expect("* worse: exit code 3\n" in done.stdout, done.stdout)


# A torch whose clock is what its attention takes: flash reaches 400 TFLOP/s forward, cuDNN 500, and half of that
# backward. Flash knows no groups of heads unless it is told; cuDNN has none.
TORCH = {
    "__init__.py": """
import types
__version__ = "2.9.1"
now = [0.0]
bfloat16 = "bf16"
def manual_seed(seed): pass
class Tensor:
    def __init__(self, *shape): self.shape, self.made_by = list(shape), None
    def transpose(self, i, j):
        self.shape[i], self.shape[j] = self.shape[j], self.shape[i]
        return self
    def requires_grad_(self): return self
def randn(*shape, device, dtype):
    assert device == "cuda" and dtype == bfloat16
    return Tensor(*shape)
class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self): self.at = now[0]
    def synchronize(self): pass
    def elapsed_time(self, other): return 1e3 * (other.at - self.at)
cuda = types.SimpleNamespace(Event=Event)
def grad(context, inputs, gradient, retain_graph):
    assert retain_graph and len(inputs) == 3 and gradient.shape == context.shape
    now[0] += 2 * 2.5 * context.made_by
    return inputs
autograd = types.SimpleNamespace(grad=grad)
""",
    "nn/__init__.py": "",
    "nn/attention.py": """
import contextlib
class SDPBackend: FLASH_ATTENTION, CUDNN_ATTENTION = 400e12, 500e12
rate = [None]
@contextlib.contextmanager
def sdpa_kernel(backend):
    rate[0] = backend
    yield
    rate[0] = None
""",
    "nn/functional.py": """
import torch
from torch.nn import attention
def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa=False):
    b, h, t, d = q.shape
    assert is_causal and k.shape == v.shape and [b, t, d] == [k.shape[i] for i in (0, 2, 3)]
    assert enable_gqa == (k.shape[1] != h) and h % k.shape[1] == 0
    if enable_gqa and attention.rate[0] == 500e12:
        raise RuntimeError("No available kernel. Aborting execution.\\nmore")
    context = torch.Tensor(*q.shape)
    context.made_by = 4 * b * h * t * t * d / 2 / attention.rate[0]
    torch.now[0] += context.made_by
    return context
""",
}

# Ours: 200 TFLOP/s forward, 250 backward.
ATTENTION_TEST = """#!/usr/bin/env python3
import json, os, sys
assert "--gtest_filter=MeasureGpu.AttentionOfTheEnvironment" in sys.argv and os.environ["TRIREME_GPU"] == "real"
for t, b, h, kv, d in json.loads(os.environ["TRIREME_ATTENTION_OF"]):
    forward = 4 * b * h * t * t * d / 2
    print("attention: " + json.dumps({"forward": forward / 200e12, "backward": 2.5 * forward / 250e12}))
"""


def attention(gpu_test=None, torch=True, gpu=True, models=(), **environment):
    """bench/gpu/attention with that torch, by this Python."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, {}, gpu=gpu)
        # Without it as on a machine that has none, whatever this one has.
        for name, text in (TORCH if torch else {"__init__.py": "raise ModuleNotFoundError(\"No module named 'torch'\")"}).items():
            path = os.path.join(folder, "modules/torch", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write(path, text)
        test = gpu_test or write(os.path.join(folder, "gpu_test"), ATTENTION_TEST, 0o755)
        env = {**machine.environment, "PYTHON": sys.executable, "PYTHONPATH": os.path.join(folder, "modules"), **environment}
        return subprocess.run([sys.executable, os.path.join(BENCH, "attention"), test, *models], capture_output=True,
                              text=True, env=env)


def attention_is_beside_torchs():
    done = attention()
    expect_code(done, 0)
    # 4 x 32 sequences x 12 heads x 1024^2 x 64 / 2 = 51.54 GFLOP: 257.7 us at 200 TFLOP/s.
    for line in ("| gpt2-124m, forward | 32 x 1024 | 12 of 64 | 257.7 | 200.0 | 128.8 | 400.0 | 0.500 | 103.1 | 500.0 | 0.400 |",
                 "| gpt2-124m, backward | 32 x 1024 | 12 of 64 | 515.4 | 250.0 | 644.2 | 200.0 | 1.250 | 515.4 | 250.0 | 1.000 |",
                 "| gpt2-350m, forward | 16 x 1024 | 16 of 64 | 171.8 | ", "| gpt2-1.5b, forward | 8 x 1024 | 25 of 64 | 134.2 | ",
                 "| llama-1b, forward | 8 x 2048 | 32 of 64, 8 kv | 687.2 | 200.0 | 343.6 | 400.0 | 0.500 | - | - | - |",
                 "* llama-1b, cuDNN: No available kernel. Aborting execution.\n", "PyTorch 2.9.1: scaled_dot"):
        expect(line in done.stdout, line, done.stdout)
    done = attention(torch=False, models=["gpt2-1.5b"])
    expect_code(done, 8)
    expect("PyTorch not here (" in done.stdout, done.stdout)
    expect("| gpt2-1.5b, forward | 8 x 1024 | 25 of 64 | 134.2 | 200.0 | - | - | - | - | - | - |" in done.stdout, done.stdout)
    with tempfile.TemporaryDirectory() as folder:
        broken = write(os.path.join(folder, "gpu_test"), "#!/bin/sh\necho a fault >&2\nexit 1\n", 0o755)
        done = attention(gpu_test=broken, models=["gpt2-124m"])
        expect_code(done, 8)
        expect("* Trireme: a fault\n" in done.stdout, done.stdout)
        expect("| 12 of 64 | - | - | 128.8 | 400.0 | - |" in done.stdout, done.stdout)
    if not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/nvidia0"):
        expect_code(attention(gpu=False), 1)


def attention_is_timed_by(gpu_test):
    """An emulated GPU's tensor cores reach 50 TFLOP/s, of whole blocks of 128 x 128: 8 x 9 / 2 of 8 x 8 / 2, 9/8."""
    done = attention(gpu_test=gpu_test, TRIREME_GPU="emulated")
    expect_code(done, 0)
    rows = re.findall(r"^\| ([^,]+), (\w+) \| [^|]+ \| [^|]+ \| [0-9.]+ \| ([0-9.]+) \|", done.stdout, re.M)
    expect(len(rows) == 8, done.stdout)
    for model, _, reached in rows:
        blocks = shapes.MODELS[model][7] // 128
        expect(abs(float(reached) / (50 * blocks / (blocks + 1)) - 1) < 0.02, model, reached, done.stdout)


def main():
    if len(sys.argv) > 2:
        attention_is_timed_by(os.path.abspath(sys.argv[2]))
        print("passed")
        return
    for test in (all_are_met, missed_is_not_hidden, without_pytorch_the_ratio_is_not_measured, a_side_that_fails_is_noted,
                 a_turn_that_hangs_ends, nothing_is_measured_without_a_gpu, what_is_not_there_is_refused,
                 step_parts_need_events, memory_is_a_row_per_bundle, attention_is_beside_torchs):
        test()
    print("passed")


main()
