#!/bin/bash
# usage: mpi_run.sh SLUICE SLUICE_MPI LAYER TWO_NODES   LAYER: of 4 ranks; TWO_NODES: tests/tools/mpi/two_nodes.sh
#
# Ranks that mpirun starts give the same bits as ranks that are threads, on one machine and on two, with one trace of
# all; and report each error once.
set -uo pipefail
. "$(dirname "$0")/../../testing/own_mpi.sh"
sluice=$PWD/$1 mpi=$PWD/$2 layer=$PWD/$3 two_nodes=$PWD/$4
command -v mpirun > /dev/null || { echo "SKIP: there is no mpirun"; exit 0; }
# instrumented programs report what MPI itself never frees
if grep -aqE '__(asan|tsan)_init' "$mpi"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
own_mpi "$work"
cd "$work" || exit 1

failed=0
check() {
  "${@:2}" || { echo "FAILED: $1"; failed=1; }
}
same() {
  for rank in 0 1 2 3; do cmp "threads-$rank" "$1-$rank" || return 1; done
}
run() { # ranks, options of sluice run...
  timeout 60 mpirun -n "$1" --oversubscribe --bind-to none "$sluice" run "$layer" "${@:2}"
}

"$sluice" make-inputs "$layer" --out 'in-{rank}' --tokens 64,0,17,33 --routing zipf:1.5 --seed 7 > made || exit 1
"$sluice" run "$layer" --in 'in-{rank}' --out 'threads-{rank}' > threads.txt || exit 1

check "mpirun starts ranks" run 4 --in 'in-{rank}' --out 'mpi-{rank}' --trace mpi.json > mpi.txt
check "they give the same bits" same mpi
check "one report" test "$(grep -c '^entry *rows' mpi.txt)" = 1
check "one trace" test "$(grep -o '"name":"rank [0-3]"' mpi.json | sort -u | wc -l)" = 4

run 2 --in 'in-{rank}' --out 'no-{rank}' 2> errors && check "another number of ranks" false
check "is named" grep -q 'sluice: error: found 2 ranks, expected 4' errors
"$sluice" run "$layer" --transport mpi --in 'in-{rank}' --out 'no-{rank}' 2> errors && check "no mpirun" false
check "is named" grep -q 'start it as `mpirun -n 4 sluice run ...`' errors
run 4 --in 'none-{rank}' --out 'no-{rank}' 2> errors && check "no inputs" false
check "are said once" test "$(grep -c 'sluice: error: rank 0: none-0: cannot read' errors)" = 1
check "and nothing else" test "$(grep -c 'sluice: error' errors)" = 1
check "nothing written" test -z "$(ls no-* 2> /dev/null)"

"$two_nodes" --per-node 2 "$mpi" run "$layer" --in "$work/in-{rank}" --out "$work/nodes-{rank}" > nodes.txt 2>&1 ||
  check "two machines: $(cat nodes.txt)" false
if grep -q SKIP nodes.txt; then cat nodes.txt; else check "two machines give the same bits" same nodes; fi
exit $failed
