#!/bin/bash
# usage: readme_test.sh SLUICEC SLUICE LEAST PAGE...
#
# Runs the blocks of each page that follow <!-- readme-test -->, one page after another in one folder. Fails where a
# page has no such block, or all pages together have fewer than LEAST commands of sluicec and sluice.
set -euo pipefail
tools=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$tools"' EXIT
cp "$1" "$tools/sluicec"
cp "$2" "$tools/sluice"
least=$3
shift 3
export PATH="$tools:$PATH" SLUICE_TARGETS="$PWD/targets"

for page in "$@"; do
  awk '/<!-- readme-test -->/ {wanted = 1; next}
       /^```/ {if (inside) {inside = 0; wanted = 0} else if (wanted) inside = 1; next}
       inside' "$page" > "$tools/page.sh"
  [ -s "$tools/page.sh" ] || { echo "$page has no block that is tested"; exit 1; }
  cat "$tools/page.sh" >> "$tools/commands.sh"
done
commands=$(grep -cE '^sluicec? ' "$tools/commands.sh")
[ "$commands" -ge "$least" ] || { echo "found only $commands commands in $*, expected $least or more"; exit 1; }

mkdir "$tools/docs"
cp -rL graphs targets "$tools"
cd "$tools"
set -x
# head closes the pipe early: that is no failure of the tool before it
set +o pipefail
source "$tools/commands.sh"
