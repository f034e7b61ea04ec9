#!/bin/bash
# usage: gpu_bench.sh GPU_CHECK.tar.gz
#
# The archive has a program for each case, which gpu_bench loads; without a GPU its command ends with a reason.
set -uo pipefail
tar xzf "$1" -C "$TEST_TMPDIR"
cd "$TEST_TMPDIR"
failed=0
check() { "${@:2}" || { echo "FAILED: $1"; failed=1; }; }
cases=$(gpu_check/gpu_bench --help | tr -d '\n' | grep -o 'default:  *[a-z0-9, ]*n256' | sed 's/default: *//; s/[, ][, ]*/ /g')
check "the names of the cases: $cases" test "$(wc -w <<< "$cases")" = 11
for name in $cases; do
  check "the program of case $name" test -s "gpu_check/bench_programs/$name.slp"
  [[ "$name" != n* ]] || check "the layer of case $name" test -s "gpu_check/bench_programs/$name.layer.slp"
done
gpu_check/bench --device cuda:1000 > out 2>&1
check "exit status" test $? = 1
check "the reason: $(cat out)" grep -q "error: --device: device 'cuda:1000': " out
gpu_check/gpu_bench > /dev/null 2>&1
check "no folder is wrong usage" test $? = 2
exit $failed
