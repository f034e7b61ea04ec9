#!/bin/bash
# usage: readme_test.sh README SLUICEC SLUICE   runs the README's blocks that follow <!-- readme-test -->
set -euo pipefail
tools=$(mktemp -d)
cp "$2" "$tools/sluicec"
cp "$3" "$tools/sluice"
export PATH="$tools:$PATH" SLUICE_TARGETS="$PWD/targets"

awk '/<!-- readme-test -->/ {wanted = 1; next}
     /^```/ {if (inside) {inside = 0; wanted = 0} else if (wanted) inside = 1; next}
     inside' "$1" > "$tools/commands.sh"
commands=$(grep -cE '^sluicec? ' "$tools/commands.sh")
[ "$commands" -ge 10 ] || { echo "found only $commands commands in $1"; exit 1; }

cp -rL graphs targets "$tools"
cd "$tools"
set -x
# head closes the pipe early: that is no failure of the tool before it
set +o pipefail
source "$tools/commands.sh"
