#!/bin/bash
# Checks the GPU of this machine with the programs beside it: usage: run [OPTION OF gpu_check...]
#
# Prints a line for each check and writes gpu_check_probes.json, gpu_check.json and gpu_check_large.json to the current
# folder. Takes at most ten minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=("$here"/*.slp)
small=()
for program in "${programs[@]}"; do [[ "$program" == */large.slp ]] || small+=("$program"); done
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
status=0
# Probes in a process of their own: an error of the device, after which a process cannot use it any more, ends only that.
timeout 120 "$here/gpu_check" --json gpu_check_probes.json "$@" || status=$?
"$here/gpu_check" "${small[@]}" --no-probes --json gpu_check.json "$@" || status=$?
# a layer whose time counts: reference results of the CPU take most of the time, so fewer runs
"$here/gpu_check" "$here/large.slp" --no-probes --runs 5 --json gpu_check_large.json "$@" || status=$?
exit $status
