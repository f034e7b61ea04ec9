#!/bin/bash
# Overlap over a slow network: a layer on ranks in two network namespaces whose link tc limits; the rate is halved
# until communication alone takes as long as computation alone. The layer is compiled for one core per rank and for the
# rate of the link, which determines the order of tasks and the size of slots. Prints the table of `sluice run --overlap`
# for each rate, and for the last one also with a flush per signal and for the unchanged target. Needs root, tc, and
# mpirun or (--engine ucx, without the last two tables) torchrun and UCX.
#
# usage: tools/bench/network_overlap.sh [--engine mpi|ucx] [--layer LAYER] [--tokens own|same] [--rows N] [--ranks N] [--build DIR]
#            [--repeat N] [--own-cores yes] [--timeline FILE.svg] [RATE...]
#        rates in tc's format, in Mbit/s or Gbit/s (default: 2gbit 1gbit 500mbit 250mbit 125mbit)
#        --layer: moe_ffn (default), or a linear layer that all ranks share: column_parallel, row_parallel (4096 columns
#        in, 8192 out); --tokens same: all ranks have all tokens, and the sums of row_parallel go to all
#        --rows: tokens of all ranks together (default: 1024)
#        --ranks: an even number, half of them in each namespace (default: 2)
#        --own-cores: each rank has half of the cores for its workers and its communication; otherwise the workers
#        share the first cores, and the others are for communication
#        --timeline: draws a step at the first rate (sluice report --format svg) and measures nothing else
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=mpi layer=moe_ffn tokens=own rows=1024 ranks=2 build="" repeat=15 own_cores="" timeline=""
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --engine) engine=$2 ;;
    --layer) layer=$2 ;;
    --tokens) tokens=$2 ;;
    --rows) rows=$2 ;;
    --ranks) ranks=$2 ;;
    --build) build=$2 ;;
    --repeat) repeat=$2 ;;
    --own-cores) own_cores=$2 ;;
    --timeline) timeline=$2 ;;
    *) echo "network_overlap: error: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
case "$layer $tokens" in
  "moe_ffn own" | column_parallel\ * | row_parallel\ *) ;;
  *) echo "network_overlap: error: found --layer $layer --tokens $tokens, expected moe_ffn, column_parallel or" \
       "row_parallel, and the same tokens only for the last two" >&2; exit 2 ;;
esac
[ "$engine" = mpi ] || [ "$engine$timeline" = ucx ] ||
  { echo "network_overlap: error: found --engine $engine, expected mpi, or ucx without --timeline" >&2; exit 2; }
((ranks >= 2 && ranks % 2 == 0)) ||
  { echo "network_overlap: error: found --ranks $ranks, expected an even number from 2 on" >&2; exit 2; }
rates=("$@")
[ ${#rates[@]} -gt 0 ] || rates=(2gbit 1gbit 500mbit 250mbit 125mbit)
if [ -z "$build" ]; then
  bazel build //tools:sluicec //tools:sluice "$([ "$engine" = mpi ] && echo //tools:sluice-mpi || echo //tools/bench:ucx-run)"
  build=$(bazel info bazel-bin 2> /dev/null)/tools
fi

work=$(mktemp -d /tmp/sl_net_XXXXXX)
trap 'rm -rf "$work"' EXIT

each=$((rows / ranks)) # tokens of one rank
[ "$tokens" = own ] || each=$rows

compile() { # target, program, options
  local target=$1 program=$2
  shift 2
  if [ "$layer" = moe_ffn ]; then
    set -- graphs/moe_ffn/train.json --set ep="$ranks" --set experts=16 --set top_k=8 --set hidden=2048 --set intermediate=768 "$@"
  else
    set -- "graphs/linear/$layer.json" --set tp="$ranks" --set tokens="$tokens" --set in=4096 --set out=8192 --trainable all "$@"
  fi
  "$build/sluicec" --target "$target" --set max_tokens="$each" "$@" -o "$program"
}

# the target cpu with a link of this rate and a latency of 0.1 ms
make_target() { # rate, file
  /usr/bin/python3 - "$1" "$2" << 'MAKE'
import json, re, sys
number, unit = re.fullmatch(r"([0-9.]+)([mg])bit", sys.argv[1]).groups()
target = json.load(open("targets/cpu.json"))
target["name"] = "slow"
bandwidth = float(number) * {"m": 1e6, "g": 1e9}[unit] / 8
target["link"] = {"value": {"bandwidth": bandwidth, "latency": 1e-4}, "source": "as tc limits it"}
json.dump(target, open(sys.argv[2], "w"))
MAKE
}

measure() { # rate, program, what to measure (--overlap)
  if [ "$engine" = ucx ]; then
    rm -rf "$work/addresses"
    mkdir "$work/addresses"
    SLUICE_TEST_SECONDS=600 tests/torch/two_machines.sh --rate "$1" --per-node $((ranks / 2)) --own-cores "$own_cores" \
      "$build/bench/ucx-run" "$work/addresses" 1 "$repeat" "$2"
    return
  fi
  SLUICE_TEST_SECONDS=600 tests/tools/mpi/two_nodes.sh --rate "$1" --per-node $((ranks / 2)) --own-cores "$own_cores" \
    --mpirun "-x SLUICE_MPI_SIGNALS" "$build/sluice-mpi" run "$2" --in "$work/in-{rank}" --out "$work/out-{rank}" \
    --threads 1 --timeout 120 --repeat "$repeat" "${@:3}"
}

compile cpu "$work/as_it_is.slp"
"$build/sluice" make-inputs "$work/as_it_is.slp" --out "$work/in-{rank}" --tokens "$each" --seed 1 > "$work/made"
export SLUICE_MPI_SIGNALS=batched
for rate in "${rates[@]}"; do
  printf '\n== %s\n' "$rate"
  make_target "$rate" "$work/slow.json"
  compile "$work/slow.json" "$work/layer.slp" --cores 1
  if [ -n "$timeline" ]; then
    measure "$rate" "$work/layer.slp" --trace "$work/trace.json"
    "$build/sluice" report "$work/trace.json" --format svg -o "$timeline"
    exit
  fi
  measure "$rate" "$work/layer.slp" --overlap
done
[ "$engine" = mpi ] || exit 0
printf '\n== %s, a flush for each signal\n' "${rates[-1]}"
SLUICE_MPI_SIGNALS=each measure "${rates[-1]}" "$work/layer.slp" --overlap
printf '\n== %s, compiled for 8 cores and shared memory\n' "${rates[-1]}"
measure "${rates[-1]}" "$work/as_it_is.slp" --overlap
