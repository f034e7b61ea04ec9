#!/bin/bash
# Stands in for Bazel's combined report: joins the files named in --reports_file.
set -u
for a in "$@"; do case "$a" in
  --reports_file=*) rep="${a#*=}";; --output_file=*) out="${a#*=}";;
esac; done
: > "$out"
while read -r f; do [ -s "$f" ] && cat "$f" >> "$out"; done < "$rep"
exit 0
