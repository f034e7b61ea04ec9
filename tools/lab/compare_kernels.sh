#!/bin/bash
# Products by the kernels of this tree and of others, in turn in one process, for example those of an older
# commit:
#   git worktree add /tmp/before HEAD~1
#   tools/lab/compare_kernels.sh --layout transposed --rows 64 /tmp/before .
# Options: bazel run //tools/lab:compare_kernels -- --help. Builds //ops:avx512 (or that of --isa) in each tree.
set -euo pipefail
cd "$(dirname "$0")/../.."
isa=avx512 trees=() options=()
while (($#)); do
  case "$1" in
    --isa) isa=$2 options+=("$1" "$2"); shift ;;
    -h | --help) options+=("$1") ;;
    --*) options+=("$1" "${2:?$1 has no value}"); shift ;;
    *) trees+=("$1") ;;
  esac
  shift
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
libraries=()
for tree in "${trees[@]}"; do
  cmp -s runtime/abi/kernels.h "$tree/runtime/abi/kernels.h" ||
    { echo "compare_kernels: error: $tree: expected the runtime/abi/kernels.h of this tree" >&2; exit 1; }
  (cd "$tree" && bazel build "//ops:$isa" >&2)
  libraries+=("$folder/${#libraries[@]}-$(basename "$(realpath "$tree")").so")
  g++ -shared -Wl,--whole-archive "$tree/bazel-bin/ops/lib$isa.a" -Wl,--no-whole-archive -o "${libraries[-1]}"
done
bazel build //tools/lab:compare_kernels >&2
bazel-bin/tools/lab/compare_kernels "${options[@]}" "${libraries[@]}"
