#!/bin/bash
# usage: mpi_linear.sh SLUICE SLUICEC   from the runfiles root
#
# Linear layers that 2 and 4 ranks share, column- and row-parallel, with tokens of their own and with the same: ranks that
# mpirun starts give the same bits as ranks that are threads, forward and backward, by the memory of the machine and by
# messages only.
set -uo pipefail
. "$(dirname "$0")/../../testing/own_mpi.sh"
sluice=$PWD/$1 sluicec=$PWD/$2 graphs=$PWD/graphs/linear target=$PWD/targets/cpu.json
command -v mpirun > /dev/null || { echo "SKIP: there is no mpirun"; exit 0; }
# instrumented programs report what MPI itself never frees
if grep -aqE '__(asan|tsan)_init' "$sluice"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
own_mpi "$work"
cd "$work" || exit 1

fail() {
  echo "FAILED: $layer, tokens $tokens ($holders): $1"
  cat said
  exit 1
}

for layer in column_parallel_bias row_parallel_bias; do
  for case in 2:own:0,17 2:same:9,9 4:own:20,0,1,7 4:same:13,13,13,13; do
    IFS=: read -r tp holders tokens <<< "$case"
    "$sluicec" "$graphs/$layer.json" --target "$target" --set tp="$tp" --set tokens="$holders" --set in=48 --set out=96 \
      --set max_tokens=20 --trainable all -o layer.slp > said 2>&1 || fail "not compiled"
    "$sluice" make-inputs layer.slp --out 'in-{rank}' --tokens "$tokens" > said 2>&1 || fail "no inputs"
    "$sluice" run layer.slp --in 'in-{rank}' --out 'threads-{rank}' > said 2>&1 || fail "ranks as threads"
    for neighbours in memory messages; do
      SLUICE_MPI_NEIGHBOURS=$neighbours timeout 60 mpirun -n "$tp" --oversubscribe --bind-to none \
        "$sluice" run layer.slp --in 'in-{rank}' --out 'mpi-{rank}' > said 2>&1 || fail "ranks by mpirun, $neighbours"
      for entry in forward backward; do grep -q "^$entry " said || fail "no $entry"; done
      for ((rank = 0; rank < tp; ++rank)); do
        cmp "threads-$rank" "mpi-$rank" || fail "other bits at rank $rank, $neighbours"
        rm "mpi-$rank"
      done
    done
  done
done
