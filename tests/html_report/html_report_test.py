#!/usr/bin/env python3
"""Opens the pages that `--report` writes in a headless Chromium, as their readers do.

    html_report_test.py <trireme> <source folder> [--compiler TRIREME] [--screenshots FOLDER]

One browser for all pages. --compiler: a build with a code generator, with which `run` is tested too.
--screenshots: keeps one of every page in two widths, to be looked at.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None

SKIPPED = 77  # what ctest calls a test that was skipped
arguments = None

SMALL = ["--model", "gpt2-124m", "--cluster", "dgx-a100", "--gpus", "8", "--batch", "32", "--seq",
         "1024", "--pp", "4", "--microbatch", "1"]
LARGE = ["--model", "gpt3-175b", "--cluster", "dgx-a100", "--gpus", "1024", "--batch", "4096",
         "--seq", "2048", "--precision", "bf16", "--tp", "8", "--pp", "16", "--virtual-stages", "6",
         "--microbatch", "1", "--dp", "8"]
CHUNKS = ["--model", "gpt2-124m", "--cluster", "dgx-a100", "--stack", "megatron-core", "--gpus", "8", "--batch", "32",
          "--seq", "1024", "--pp", "2", "--virtual-stages", "5", "--precision", "bf16"]
NCCL = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5
#  Rank  0 Group  0 Pid 10 on host device  0
#  Rank  1 Group  0 Pid 10 on host device  1
#       size    count  type redop root    time  algbw  busbw #wrong     time  algbw  busbw #wrong
     1048576   262144 float   sum   -1   100.0  10.49  10.49      0    100.5  10.43  10.43      0
     4194304  1048576 float   sum   -1   250.0  16.78  16.78      0    249.0  16.84  16.84      0
"""
SWEEP = ["--model", "gpt3-175b", "--cluster", "dgx-h100", "--stack", "megatron-core", "--gpus",
         "256,512,1024", "--batch", "1536", "--seq", "2048", "--tokens", "300B", "--price",
         "2.5USD/h", "--deadline", "9d", "--mtbf", "5y", "--checkpoint-bandwidth", "100GB/s",
         "--restart", "10min"]


def trireme(*args, code=0):
    done = subprocess.run([arguments.trireme, *args], capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"trireme {' '.join(args)}: {done.returncode}\n{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def numbers_in(value):
    """Every number of a JSON value, at any depth."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from numbers_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers_in(item)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="trireme-report-")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--user-data-dir=" + os.path.join(cls.folder, "browser")]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.browser = webdriver.Chrome(options=options,
                                       service=Service(shutil.which("chromedriver")))
        cls.browser.set_script_timeout(60)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def report(self, name, *args):
        """Runs the command with --json and --report; returns its JSON and the page's path."""
        page = self.path(name + ".html")
        return json.loads(trireme(*args, "--json", "--report", page)), page

    def script(self, code, *args):
        return self.browser.execute_script(code, *args)

    def view(self, width, dark=False):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def open(self, page, width=1280, dark=False):
        self.view(width, dark)
        self.browser.get_log("performance")
        self.browser.get("file://" + page)
        self.assertEqual(self.script("return document.documentElement.dataset.ready"), "true",
                         self.browser.get_log("browser"))

    def check_everywhere(self, page):
        """No errors, no requests, and nothing wider than the screen, in all widths and colours."""
        for width in [1280, 390]:
            for dark in [False, True]:
                self.open(page, width, dark)
                self.assertEqual(self.browser.get_log("browser"), [])
                self.assertEqual(self.requests(), ["file://" + page])
                wide = self.script("return document.documentElement.scrollWidth - innerWidth")
                self.assertLessEqual(wide, 0, f"{page}: wider than {width} by {wide}")
                self.assertGreater(self.contrast(), 7, f"dark: {dark}")
                self.keep_screenshot(page, width, dark)

    def requests(self):
        urls = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def contrast(self):
        """Of text on the ground, as WCAG 2 defines it."""
        colors = self.script("const s = getComputedStyle(document.body);"
                             "return [s.color, s.backgroundColor];")

        def luminance(color):
            parts = [int(part) / 255 for part in color[color.index("(") + 1:-1].split(",")[:3]]
            linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        light, dark = sorted(map(luminance, colors), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    def keep_screenshot(self, page, width, dark):
        if not arguments.screenshots:
            return
        height = self.script("return document.documentElement.scrollHeight")
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        name = os.path.basename(page).replace(".html", f"-{width}{'-dark' if dark else ''}.png")
        self.browser.save_screenshot(os.path.join(arguments.screenshots, name))

    def table_numbers(self):
        """Exact values of all tables' cells."""
        texts = self.script(
            "return [...document.querySelectorAll('[data-value]')].map(c => c.dataset.value)")
        return [float(text) for text in texts]

    def check_tables_hold(self, values):
        held = self.table_numbers()
        for value in values:
            self.assertTrue(any(abs(value - h) <= 1e-12 * abs(value) for h in held),
                            f"{value} is in no table")

    def marks(self, kind="*"):
        return self.script(f"return document.querySelectorAll('svg {kind}.mark').length")

    # The plan.

    def test_plan(self):
        answer, page = self.report("plan", "plan", *SMALL)
        self.check_everywhere(page)
        self.open(page)
        self.check_tables_hold(numbers_in([answer["estimate"]["breakdownSeconds"],
                                           answer["estimate"]["memoryBytes"],
                                           answer["certificate"]["pruned"], answer["stageBytes"]]))
        self.check_tables_hold([r["estimate"]["stepSeconds"] for r in answer["runnersUp"]])
        self.assertGreater(self.marks("rect"), 10)
        self.assertEqual(self.marks("path"), 4, "a memory line per stage")
        text = self.script("return document.querySelector('#text pre').textContent")
        self.assertIn(answer["summary"].split(",")[0], text)
        self.check_timeline()
        self.check_all_numbers(answer)
        self.check_print()

    def check_timeline(self):
        """4 stages; 32 / dp microbatches forward and backward on each."""
        timeline = self.script("return JSON.parse(document.getElementById('data').textContent)"
                               ".timeline")
        self.assertEqual(len(timeline["stages"]), 4)
        tasks = sum(len(stage["tasks"]["begin"]) for stage in timeline["stages"])
        self.assertEqual(self.drawn("marks"), str(tasks))
        for stage in timeline["stages"]:
            parts = sum(stage[part + "Seconds"] for part in
                        ["forward", "backward", "communication", "optimizer", "idle"])
            self.assertAlmostEqual(parts / timeline["stepSeconds"], 1, 9)
        self.check_click(timeline)
        self.script("document.getElementById('zoom-in').click()")
        first, last = map(float, self.drawn("domain").split())
        self.assertAlmostEqual((last - first) / timeline["stepSeconds"], 0.5, 9)
        self.assertLess(int(self.drawn("marks")), tasks)
        self.script("document.getElementById('later').click()")
        self.assertAlmostEqual(float(self.drawn("domain").split()[1]), timeline["stepSeconds"], 9)
        self.script("document.getElementById('whole').click()")
        self.assertEqual(self.drawn("marks"), str(tasks))
        self.check_wheel(timeline)

    def drawn(self, what):
        return self.script(f"return document.getElementById('timeline').dataset.{what}")

    def mouse(self, kind, x, y, **more):
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent",
                                     {"type": kind, "x": x, "y": y, **more})

    def check_click(self, timeline):
        """A click at the longest forward of stage 2 names it, and it is drawn in its colour."""
        tasks = timeline["stages"][2]["tasks"]
        forwards = [i for i, kind in enumerate(tasks["direction"]) if kind == "F"]
        i = max(forwards, key=lambda k: tasks["compute"][k])
        box = self.script("const c = document.getElementById('timeline');"
                          "c.scrollIntoView({block: 'center'});"
                          "const b = c.getBoundingClientRect(); return [b.left, b.top, b.width]")
        middle = (tasks["begin"][i] + tasks["compute"][i] / 2) * 1e-9
        x = 64 + middle / timeline["stepSeconds"] * (box[2] - 1 - 64)
        y = 2 * 26 + 7  # above the number in the row's middle
        pixel = self.script(
            "const c = document.getElementById('timeline'), r = c.width / c.clientWidth;"
            "return [...c.getContext('2d').getImageData(arguments[0] * r, arguments[1] * r, 1, 1)"
            ".data]", x, y)
        self.assertEqual(pixel[:3], [0x00, 0x72, 0xb2], "blue is forward")
        for kind in ["mousePressed", "mouseReleased"]:
            self.mouse(kind, box[0] + x, box[1] + y, button="left", clickCount=1)
        said = self.script("return document.getElementById('timeline-readout').textContent")
        self.assertIn(f"Stage 2, forward of microbatch {tasks['microbatch'][i]}", said)

    def check_wheel(self, timeline):
        """Zooms where the pointer is once the timeline has the focus."""
        box = self.script("const c = document.getElementById('timeline'); c.focus();"
                          "const b = c.getBoundingClientRect(); return [b.left, b.top, b.width]")
        self.mouse("mouseWheel", box[0] + box[2] / 2, box[1] + 20, deltaX=0, deltaY=-300)
        first, last = 0, timeline["stepSeconds"]
        for _ in range(50):
            first, last = map(float, self.drawn("domain").split())
            if last - first < timeline["stepSeconds"]:
                break
            self.script("return new Promise(requestAnimationFrame)")
        self.assertLess(last - first, 0.9 * timeline["stepSeconds"])

    def check_all_numbers(self, answer):
        """What the page shows as JSON is what the command printed, but for its own search time."""
        self.script("[...document.querySelectorAll('details')].forEach(d => { d.open = true; })")
        self.script("return new Promise(requestAnimationFrame)")
        shown = json.loads(self.script("return document.getElementById('json').textContent"))
        for key, value in answer.items():
            self.assertEqual(shown[key], value, key)
        rows = self.script("return document.querySelectorAll('tbody tr').length")
        self.assertGreater(rows, 20)
        wide = self.script("return document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wide, 0)

    def check_print(self):
        """On paper the tables are open."""
        self.script("document.querySelectorAll('details').forEach(d => { d.open = false; });"
                    "dispatchEvent(new Event('beforeprint'))")
        closed = self.script("return document.querySelectorAll("
                             "'details.table:not([open]):not([data-long])').length")
        self.assertEqual(closed, 0)
        pdf = self.browser.execute_cdp_cmd("Page.printToPDF", {})["data"]
        self.assertGreater(len(pdf), 20000)

    def test_text_is_there_without_scripts(self):
        _, page = self.report("quiet", "plan", *SMALL)
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            self.browser.get("file://" + page)
            text = self.browser.find_element("css selector", "#text pre").text
            self.assertIn("certificate", text)
        finally:
            self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    def test_certificate_says_of_what_it_is(self):
        even = "(chunks of a stage differ by one layer at most)"
        for name, options in (("plain", SMALL), ("chunks", CHUNKS)):
            answer, page = self.report(name, "plan", *options)
            certificate = answer["certificate"]
            self.assertEqual(certificate["ofEvenChunks"], options is CHUNKS)
            self.open(page)
            text = self.script("return document.getElementById('main').textContent")
            self.assertEqual(even in text, certificate["ofEvenChunks"])
            self.assertEqual("Optimal, gap 0 %" in text,
                             certificate["gap"] <= 0 and not certificate["planIsBeyond"])
            self.assertEqual("others like it are not bounded. Gap" in text, certificate["planIsBeyond"])
        self.assertTrue(certificate["planIsBeyond"], "of the second query")

    def test_large_plan_is_a_small_file(self):
        """16 stages x 6 chunks x 512 microbatches, forward and backward: 98304 tasks."""
        _, page = self.report("large", "plan", *LARGE)
        self.assertLess(os.path.getsize(page), 5e6)
        self.check_everywhere(page)
        self.open(page)
        stages = self.script("return JSON.parse(document.getElementById('data').textContent)"
                             ".timeline.stages")
        self.assertEqual(len(stages), 16)
        self.assertGreaterEqual(sum(stage["numTasks"] for stage in stages), 98304)
        self.assertLessEqual(int(self.drawn("marks")), 24000)
        for stage in stages:
            between = stage["between"]
            self.assertEqual(between["numTasks"] + len(stage["tasks"]["begin"]), stage["numTasks"])
        lead = self.script("return document.getElementById('main').textContent")
        self.assertIn("tasks are drawn", lead)

    def test_check(self):
        plan = self.path("check.yaml")
        trireme("plan", *SMALL, "-o", plan)
        answer, page = self.report("check", "plan", "--check", plan, *SMALL[:4])
        self.check_everywhere(page)
        self.open(page)
        self.check_tables_hold(numbers_in([answer["estimate"]["breakdownSeconds"],
                                           answer["optimum"]["estimate"]["breakdownSeconds"],
                                           answer["behindSeconds"]]))
        self.assertEqual(len(self.script("return document.querySelectorAll('.lines li')")),
                         len(answer["changes"]))

    # The others.

    def test_whatif(self):
        answer, page = self.report("whatif", "whatif", *SWEEP)
        self.check_everywhere(page)
        self.open(page)
        points = answer["points"]
        self.check_tables_hold(p[key] for p in points for key in
                               ["stepSeconds", "tokensPerSecond", "wallSeconds", "costUsd",
                                "energyJoules", "memoryBytes", "busySeconds"])
        self.check_tables_hold(p["failures"]["goodput"] for p in points)
        self.assertEqual(self.marks("path.point"), len(points) * 2, "scaling and the front")
        first = self.script("const p = document.querySelector('svg path.point');"
                            "p.dispatchEvent(new MouseEvent('click', {bubbles: true}));"
                            "return document.getElementById('scaling-readout').textContent")
        self.assertIn("GPUs 256", first)
        before = self.script("return document.querySelector('svg').outerHTML")
        self.script("const s = document.querySelector('select'); s.value = '0';"
                    "s.dispatchEvent(new Event('change'))")
        after = self.script("return document.querySelector('svg').outerHTML")
        self.assertNotEqual(before, after)
        self.assertIn("step, s", after)
        refined = answer["deadlines"][0]["refined"]
        lines = self.script("return document.querySelector('.lines').textContent")
        self.assertIn(f"GPUs {refined['point']['gpus']:,}".replace(",", " "), lines.replace(",", " "))
        letters = {p["winner"]: p["shape"] for p in points}
        text = self.script("return document.getElementById('main').textContent")
        for shape in letters.values():
            self.assertIn(shape, text)

    def test_difference_and_worth(self):
        shared = SWEEP[:2] + ["--stack", "megatron-core", "--gpus", "64", "--batch", "512", "--seq",
                              "2048"]
        answer, page = self.report("difference", "whatif", *shared, "--diff", "dgx-a100",
                                   "dgx-h100")
        self.check_everywhere(page)
        self.open(page)
        self.check_tables_hold(part[key] for part in answer["parts"]
                               for key in ["beforeSeconds", "afterSeconds"])
        answer, page = self.report("worth", "whatif", *shared, "--cluster", "dgx-h100", "--worth")
        self.check_everywhere(page)
        self.open(page)
        self.check_tables_hold(line[key] for line in answer for key in ["amount", "gainPerUnit"])
        self.assertEqual(self.marks("rect"), len(answer))

    def test_calibrate(self):
        with open(self.path("nccl.txt"), "w", encoding="utf-8") as file:
            file.write(NCCL)
        answer, page = self.report("calibrate", "calibrate", "--nccl-tests", self.path("nccl.txt"),
                                   "--cluster", "dgx-a100")
        self.check_everywhere(page)
        self.open(page)
        values = [v for curve in answer["curves"] for v in curve["bytesAndBusBandwidth"]]
        self.check_tables_hold(numbers_in(values))
        self.assertEqual(self.marks("path.point"), len(values))
        self.check_kernels(answer, page)

    def check_kernels(self, answer, page):
        """Measuring takes too long here: the page with kernels made up."""
        answer = dict(answer, ranks=2, memoryBytes=2**30, memoryBandwidth=8e9, launchSeconds=1e-6,
                      matmulFlopsPerSecond={"f32": 40e9})
        answer["kernels"] = [{"kernel": "matmul", "dtype": "f32", "sizes": 2, "meanError": 0.05,
                              "secondsPer": {"product": 2.5e-11}}]
        answer["timedKernels"] = [
            {"kernel": "matmul", "dtype": "f32", "measuredSeconds": t, "fittedSeconds": 1.05 * t}
            for t in [1e-5, 1e-3]]
        with open(page, encoding="utf-8") as file:
            before, mark, after = file.read().partition('id="data">')
        data, end = json.JSONDecoder().raw_decode(after)
        with open(self.path("kernels.html"), "w", encoding="utf-8") as file:
            file.write(before + mark + json.dumps(dict(data, answer=answer)) + after[end:])
        self.check_everywhere(self.path("kernels.html"))
        self.open(self.path("kernels.html"))
        self.check_tables_hold([1e-5, 1.05e-5, 0.05])
        self.assertIn("product 2.500e-11 s", self.script("return document.body.textContent"))

    def test_run(self):
        if not arguments.compiler:
            self.skipTest("this build has no code generator")
        example = os.path.join(arguments.source, "examples", "quickstart")
        files = {name: os.path.join(example, name + ".yaml")
                 for name in ["model", "cluster", "train"]}
        plan, bundle = self.path("run.yaml"), self.path("run.bundle")
        trireme("plan", "--model", files["model"], "--cluster", files["cluster"], "--train",
                files["train"], "--dp", "2", "--tp", "1", "--pp", "1", "-o", plan)
        subprocess.run([arguments.compiler, "compile", "--model", files["model"], "--plan", plan,
                        "-o", bundle], check=True, capture_output=True)
        data = os.path.join(arguments.source, "README.md")
        answer, page = self.report("run", "run", bundle, "--data", data, "--steps", "6",
                                   "--cluster", files["cluster"])
        self.check_everywhere(page)
        self.open(page)
        self.check_tables_hold(answer["losses"] + answer["stepSeconds"])
        self.assertEqual(self.marks("path.point"), 12, "loss and time of 6 steps")
        self.assertIn("predicted", self.script("return document.querySelector('dl').textContent"))
        self.check_timelines()

    def check_timelines(self):
        """The last step as it was measured above the predicted one: the same tasks in the same order."""
        timelines = self.script("return JSON.parse(document.getElementById('data').textContent).timeline")
        measured, predicted = timelines["measured"], timelines["predicted"]
        self.assertEqual(len(measured["stages"]), 1)
        for key in ["direction", "chunk", "microbatch"]:
            self.assertEqual(measured["stages"][0]["tasks"][key], predicted["stages"][0]["tasks"][key])
        for timeline, canvas in [(measured, "measured"), (predicted, "timeline")]:
            stage = timeline["stages"][0]
            drawn = self.script(f"return document.getElementById('{canvas}').dataset.marks")
            self.assertEqual(drawn, str(len(stage["tasks"]["begin"])))
            parts = [stage[part + "Seconds"] for part in
                     ["forward", "backward", "communication", "optimizer", "idle"]]
            self.assertAlmostEqual(sum(parts) / timeline["stepSeconds"], 1, 6)
            self.check_tables_hold(parts)
        self.script("document.getElementById('measured-zoom-in').click()")
        first, last = map(float, self.script(
            "return document.getElementById('measured').dataset.domain").split())
        self.assertAlmostEqual((last - first) / measured["stepSeconds"], 0.5, 9)

    def test_trace_opens_in_perfetto(self):
        """Chrome's trace-event format: complete events with a process, a thread and times in us."""
        for stack in ["trireme", "megatron-core"]:
            trace = self.path(stack + ".json")
            trireme("plan", *SMALL, "--stack", stack, "--trace", trace)
            with open(trace, encoding="utf-8") as file:
                events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
            self.assertEqual(len({e["pid"] for e in events}), 4, "one rank of every stage")
            for event in events:
                self.assertGreaterEqual(event["dur"], 0)
                self.assertGreaterEqual(event["ts"], 0)

    def test_an_unwritable_place_is_refused_before_the_work(self):
        for command in [["plan", *SMALL], ["plan", "--check", "none.yaml", *SMALL[:4]],
                        ["whatif", *SWEEP], ["calibrate"], ["run", "none.bundle", "--data", "none"]]:
            error = trireme(*command, "--report", "/no/such/folder/out.html", code=1)
            self.assertIn("/no/such/folder/out.html: cannot write", error)
            self.assertEqual(len(error.splitlines()), 1)


def main():
    global arguments
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trireme")
    parser.add_argument("source")
    parser.add_argument("--compiler")
    parser.add_argument("--screenshots")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    missing = [name for name in ["chromium", "chromedriver"] if not shutil.which(name)]
    if webdriver is None or missing:
        print("skipped: needs chromium, chromium-driver and python3-selenium "
              "(cmake/debian-test-packages.txt)")
        return SKIPPED
    loader = unittest.TestLoader()
    loader.testNamePatterns = ["*" + arguments.only + "*"] if arguments.only else None
    result = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromTestCase(Page))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
