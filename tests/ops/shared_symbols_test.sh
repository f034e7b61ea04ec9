#!/bin/bash
# Kernel libraries of one instruction set define no symbol that the linker may merge with another library's.
set -u
for isa in avx2 avxvnni avx512 amx; do
  found=0
  for file in "$@"; do
    case "$file" in */lib$isa.*a) ;; *) continue ;; esac
    symbols=$(nm -C "$file") || exit 1
    if grep -qE ' U __([at]san|ubsan)_' <<<"$symbols"; then
      echo "skipped: sanitizers define symbols of their own"
      exit 0
    fi
    found=$((found + $(grep -c ' [DT] sluice::ops::' <<<"$symbols")))
    if grep -E '^[0-9a-f]+ [WVu] ' <<<"$symbols"; then
      echo "$file defines symbols that may be merged (above)"
      exit 1
    fi
  done
  if [ "$found" -eq 0 ]; then
    echo "found no kernels of $isa in: $*"
    exit 1
  fi
done
