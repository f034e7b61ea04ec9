#!/bin/bash
# Overlap over a slow network: a layer at two ranks in two network namespaces whose link tc limits, with the rate
# halved until communication alone takes as long as computation alone. Prints the table of `sluice run --overlap`
# for each rate, and at the last one also with a flush for each signal. Needs root, tc, mpirun.
#
# usage: tools/bench/network_overlap.sh [--build DIR] [--repeat N] [RATE...]     rates as tc writes them
#        (default: 2gbit 1gbit 500mbit 250mbit 125mbit)
set -euo pipefail
cd "$(dirname "$0")/../.."
build="" repeat=15
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --build) build=$2 ;;
    --repeat) repeat=$2 ;;
    *) echo "network_overlap: error: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
rates=("$@")
[ ${#rates[@]} -gt 0 ] || rates=(2gbit 1gbit 500mbit 250mbit 125mbit)
if [ -z "$build" ]; then
  bazel build //tools:sluicec //tools:sluice //tools:sluice-mpi
  build=$(bazel info bazel-bin 2> /dev/null)/tools
fi

work=$(mktemp -d /tmp/sl_net_XXXXXX)
trap 'rm -rf "$work"' EXIT
"$build/sluicec" graphs/moe_ffn/train.json --target cpu --set ep=2 --set experts=16 --set top_k=8 \
  --set hidden=2048 --set intermediate=768 --set max_tokens=512 -o "$work/layer.slp"
"$build/sluice" make-inputs "$work/layer.slp" --out "$work/in-{rank}" --tokens 512 --seed 1 > "$work/made"

measure() { # rate
  SLUICE_TEST_SECONDS=600 tests/tools/mpi/two_nodes.sh --rate "$1" --mpirun "-x SLUICE_MPI_SIGNALS" \
    "$build/sluice-mpi" run "$work/layer.slp" --in "$work/in-{rank}" --out "$work/out-{rank}" --threads 1 \
    --timeout 120 --repeat "$repeat" --overlap
}
export SLUICE_MPI_SIGNALS=batched
for rate in "${rates[@]}"; do
  printf '\n== %s\n' "$rate"
  measure "$rate"
done
printf '\n== %s, a flush for each signal\n' "${rates[-1]}"
SLUICE_MPI_SIGNALS=each measure "${rates[-1]}"
