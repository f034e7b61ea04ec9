#!/bin/bash
# usage: faults.sh PROGRAM: when a rank dies, exits, throws or stops, the others end within seconds with an error that
# names it.
set -uo pipefail
program=$1
work=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# what CASE PATTERN SECONDS: the pattern is what both other ranks report, which then end within that time. Cases, most of whose
# time is a wait, run at the same time.
check() {
  local what=$1 case=$2 pattern=$3 seconds=$4 said problem=""
  said=$(UCX_TLS=tcp,self SLUICE_TEST_SECONDS=$seconds timeout -k 5 60 "$program" 3 "$case" 2>&1)
  [ "$(grep -Ec "^SURVIVOR [02]: $pattern" <<< "$said")" = 2 ] || problem="not both others said '$pattern';"
  grep -Eq "^rank [02] .*late$" <<< "$said" && problem="$problem not both others ended within $seconds s"
  if [ -n "$problem" ]; then printf 'FAILED: %s: %s\n%s\n' "$what" "$problem" "$said"; fi > "$work/$what"
}

died="rank 1 has died or cannot be reached any more"
check "killed" "[.killed]" "$died" 10 &
check "exits" "[.exits]" "$died" 10 &
check "throws" "[.throws]" "rank 1 left while rank [02] was still waiting for the meeting of rank 1" 10 &
check "stops" "[.stops]" "rank [02]: waited 2 s for the meeting of rank 1" 15 &
export SLUICE_TEST_MESSAGES=1
check "killed, messages" "[.killed]" "$died" 10 &
check "stops, messages" "[.stops]" "rank [02]: waited 2 s for the meeting of rank 1" 15 &
wait
for said in "$work"/*; do
  if [ -s "$said" ]; then failed=$((failed + 1)); cat "$said"; else passed=$((passed + 1)); fi
done
[ $((passed + failed)) = 6 ] || failed=$((failed + 1))
echo "test cases: $((passed + failed)) | $passed passed | $failed failed"
[ $failed -eq 0 ]
