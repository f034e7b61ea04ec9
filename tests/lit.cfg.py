"""lit configuration of all .mlir and .test files below tests/: tools of the build first on the PATH."""
import os

import lit.formats

root = os.environ["SLUICE_LIT_ROOT"]
config.name = "sluice"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.environ["TEST_TMPDIR"]
config.environment["PATH"] = os.pathsep.join([os.path.join(root, "tools"), os.path.join(root, "tests/testing"), "/usr/lib/llvm-19/bin", "/usr/bin", "/bin"])
# a tool found on the PATH cannot rely on runfiles of its own
config.environment["SLUICE_TARGETS"] = os.path.join(root, "targets")
config.substitutions.append(("%root", root))
