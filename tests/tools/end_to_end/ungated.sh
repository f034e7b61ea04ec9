# ungated.sh ROOT PREFIX: layers of silu and relu2 agree with double precision, and have the same bits whether fused or not.
set -eu
root=$1
prefix=$2

# NAME OPTION...: compiles a layer twice, runs both, checks them and compares their outputs.
check_layer() {
  local layer=$1 fuse
  shift
  for fuse in all none; do
    sluicec "$root/graphs/moe_ffn/$layer.json" "$@" --set experts=5 --set top_k=2 --set hidden=66 --set intermediate=52 \
        --set max_tokens=40 --fuse=$fuse -o "$prefix.slp" > /dev/null
    [ $fuse = none ] || sluice make-inputs "$prefix.slp" --out "$prefix.in-{rank}" --tokens 33,0 > /dev/null
    sluice run "$prefix.slp" --in "$prefix.in-{rank}" --out "$prefix.$fuse-{rank}" > /dev/null
    sluice check "$prefix.slp" --in "$prefix.in-{rank}" --out "$prefix.$fuse-{rank}" > /dev/null
  done
  cmp "$prefix.all-0" "$prefix.none-0"
  cmp "$prefix.all-1" "$prefix.none-1"
}

for activation in silu relu2; do
  check_layer train --set ep=2 --set activation=$activation
  for layer in forward lora shared_expert two_gmms biased; do
    for ranks in ep tp; do
      check_layer $layer --set $ranks=2 --set activation=$activation --trainable all
    done
  done
  check_layer forward --set ep=2 --set activation=$activation --trainable all --keep=minimal
  for encodings in int8,rows=int8 int8 int4,rows=int8 int4 fp8e4m3:128x128; do
    check_layer forward --set tp=2 --set activation=$activation --trainable x --encode $encodings
  done
done
