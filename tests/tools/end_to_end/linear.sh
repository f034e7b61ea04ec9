#!/bin/bash
# usage: linear.sh ROOT PREFIX TOKENS own|same: compiles every shipped linear layer for as many ranks as TOKENS has numbers,
# runs it with ranks as threads, as processes and one after the other, and compares the outputs with each other and with double
# precision. Files begin with PREFIX.
set -euo pipefail
root=$1 tokens=$3 holders=$4
tp=$(tr ',' '\n' <<< "$tokens" | wc -l)
for layer in column_parallel column_parallel_bias row_parallel row_parallel_bias; do
  for keep in all regather; do
    at=$2.$layer.$keep
    sluicec "$root/graphs/linear/$layer.json" --target cpu --set tp="$tp" --set tokens="$holders" --set in=48 --set out=96 \
      --set max_tokens=20 --trainable all --keep $keep -o "$at.slp" > "$at.log"
    sluice verify "$at.slp" > "$at.log"
    sluice make-inputs "$at.slp" --out "$at.in-{rank}" --tokens "$tokens" > "$at.log"
    sluice run "$at.slp" --in "$at.in-{rank}" --out "$at.out-{rank}" --threads 2 > "$at.log"
    sluice check "$at.slp" --in "$at.in-{rank}" --out "$at.out-{rank}" > "$at.log"
    for name in y dx weight_grad; do grep -q "^$name " "$at.log" || { cat "$at.log"; exit 1; }; done
    sluice run "$at.slp" --in "$at.in-{rank}" --out "$at.shm-{rank}" --transport shm > "$at.log"
    sluice run "$at.slp" --seed 1 --tokens "$tokens" --out "$at.serial-{rank}" --executor serial > "$at.log"
    for ((rank = 0; rank < tp; ++rank)); do
      cmp "$at.out-$rank" "$at.shm-$rank"
      cmp "$at.out-$rank" "$at.serial-$rank"
    done
  done
done
