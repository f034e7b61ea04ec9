#!/bin/bash
# usage: lit_runner.sh TEST_FILE...   from the runfiles root of the workspace
set -euo pipefail
export SLUICE_LIT_ROOT="$PWD"
# /usr/bin/python3 by this path, because another python3 may come first on the PATH.
exec /usr/bin/python3 /usr/lib/llvm-19/build/utils/lit/lit.py -v -j1 --config-prefix=lit "$@"
