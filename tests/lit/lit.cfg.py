# Configuration of the lit tests; the site configuration in the build folder sets the paths.
import os

import lit.formats

config.name = "trireme"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = os.path.pathsep.join(
    [config.trireme_tools_dir, config.llvm_tools_dir, os.environ["PATH"]])
for name in ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
