#!/bin/bash
# usage: with_torch.sh TEST.py [ARGUMENTS]   from the runfiles root
export PYTHONPATH=$PWD/ops/torch:$PWD/examples:$PWD/tests/torch
# bazel test --config=avx2: every Python of the test, ranks included, turns oneDNN off
if [ -n "${SLUICE_TEST_WITHOUT_MKLDNN:-}" ]; then PYTHONPATH=$PWD/tests/torch/without_mkldnn:$PYTHONPATH; fi
export SLUICE_TORCH_LIBRARY=$PWD/ops/torch/libsluice_torch.so
export SLUICEC=$PWD/tools/sluicec
export SLUICE=$PWD/tools/sluice SLUICE_LIBRARY=$PWD/runtime/api/libsluice.so  # where a test has them
export SLUICE_TARGETS=$PWD/targets
export SLUICE_CACHE=${TEST_TMPDIR:-$(mktemp -d)}/programs
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 tests/torch/forks.py "$@"
