#!/bin/bash
# Measures the programs beside it on the GPU of this machine: usage: bench [OPTION OF gpu_bench...]
#
# Prints each case and writes gpu_bench.json to the current folder. Takes a few minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cublas=$(python3 -c 'import runpy, sys; print(":".join(runpy.run_path(sys.argv[1])["cublas_folders"]()))' "$here/run" || true)
export LD_LIBRARY_PATH=$here/lib${cublas:+:$cublas}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$here/gpu_bench" "$here/bench_programs" --json gpu_bench.json "$@"
