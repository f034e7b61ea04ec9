#!/bin/bash
# usage: count_test.sh SLUICE LAYER RECORDED
# Runs a small layer on portable kernels under callgrind and compares the instructions of its tasks with the
# numbers recorded for the compiler: unlike times, counts are the same on every machine, however busy.
set -euo pipefail

if grep -q __asan_init "$1" || grep -q __tsan_init "$1"; then
  echo "skipped: instructions of a build with sanitizers say nothing"
  exit 0
fi
if ! command -v valgrind > /dev/null; then
  echo "FAIL: valgrind is missing: tools/setup installs it"
  exit 1
fi
sluice=$PWD/$1 layer=$PWD/$2 recorded=$PWD/$3 name=$3
compiler=g++-$(readelf -p .comment "$sluice" | sed -n 's/.*GCC: (.*) \([0-9]*\)\..*/\1/p' | sort -n | tail -1)
grep -q "^$compiler " "$recorded" || { echo "skipped: nothing is recorded for $compiler"; exit 0; }
cd "${TEST_TMPDIR:-$(mktemp -d)}"
"$sluice" make-inputs "$layer" --out in.safetensors --tokens 64 --seed 1

failures=0
# check ENTRY PERCENT: a larger increase is a regression; a decrease of ten times PERCENT must be recorded
check() {
  local found wanted
  SLUICE_ISA=portable valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no \
    --toggle-collect='sluice::SerialExecutor::runTasks(*' \
    "$sluice" run "$layer" --in in.safetensors --out out.safetensors --entry "$1" --executor serial > run.txt 2> log.txt ||
    { cat log.txt; exit 1; }
  found=$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' log.txt)
  wanted=$(sed -n "s/^$compiler $1 //p" "$recorded")
  echo "$compiler: $1: found $found instructions, recorded $wanted"
  if [ -z "$found" ] || [ "$found" -eq 0 ] || [ -z "$wanted" ]; then
    echo "FAIL: nothing to compare"
    failures=$((failures + 1))
  elif [ $((found * 100)) -gt $((wanted * (100 + $2))) ]; then
    echo "FAIL: more than $2% above what is recorded; if that is meant, write '$compiler $1 $found' into $name"
    failures=$((failures + 1))
  elif [ $((found * 100)) -lt $((wanted * (100 - 10 * $2))) ]; then
    echo "note: far below what is recorded; write '$compiler $1 $found' into $name to keep it so"
  fi
}
check forward 3
check forward,backward 3
exit $((failures > 0))
