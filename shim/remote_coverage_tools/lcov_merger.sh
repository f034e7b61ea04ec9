#!/bin/bash
# Stands in for Bazel's LcovMerger: joins all *.dat records of --coverage_dir into --output_file.
set -u
for a in "$@"; do case "$a" in
  --coverage_dir=*) dir="${a#*=}";; --output_file=*) out="${a#*=}";;
esac; done
: > "$out"
find "$dir" -name '*.dat' ! -samefile "$out" -exec cat {} + >> "$out"
