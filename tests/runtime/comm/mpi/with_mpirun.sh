#!/bin/bash
# usage: with_mpirun.sh RANKS [NAME=VALUE...] PROGRAM: runs a Catch2 program as RANKS ranks on this machine. Prints the
# output of rank 0, and that of the others if something failed.
set -uo pipefail
. "$(dirname "$0")/../../../testing/own_mpi.sh"
ranks=$1; shift
while [[ "$1" == *=* ]]; do export "$1"; shift; done
if ! command -v mpirun > /dev/null; then echo "SKIP: there is no mpirun"; exit 0; fi
# ThreadSanitizer does not see how MPI's own threads and memory agree
if grep -aq __tsan_init "${@: -1}"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
for engine in "pml ${OMPI_MCA_pml:-}" "mtl ${OMPI_MCA_mtl:-}"; do
  [ "${engine#* }" = "" ] && continue
  why=$(why_without "$engine")
  [ -z "$why" ] || { echo "SKIP: $why"; exit 0; }
done
said=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$said"' EXIT
own_mpi "$said"
# to files of each rank's own: what mpirun's own options for that mean changed from Open MPI 4 to 5
timeout 120 mpirun -n "$ranks" --oversubscribe --bind-to none \
  sh -c 'exec "$@" > "$0/rank.$OMPI_COMM_WORLD_RANK" 2>&1' "$said" "$@" > "$said/all" 2>&1 < /dev/null
status=$?
if [ "$status" -ne 0 ]; then cat "$said"/rank.* "$said/all"; exit "$status"; fi
cat "$said/rank.0"
