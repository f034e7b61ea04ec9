#!/bin/bash
# usage: faults.sh PROGRAM: when a rank dies, exits, throws or stops, the others end within seconds with an error that
# names it.
set -uo pipefail
program=$1
passed=0 failed=0

# what CASE PATTERN: the pattern is what both other ranks report, who then end in time
check() {
  local what=$1 case=$2 pattern=$3 said problem=""
  said=$(UCX_TLS=tcp,self SLUICE_TEST_SECONDS=15 timeout -k 5 60 "$program" 3 "$case" 2>&1)
  [ "$(grep -Ec "^SURVIVOR [02]: $pattern" <<< "$said")" = 2 ] || problem="not both others said '$pattern';"
  grep -Eq "^rank [02] .*late$" <<< "$said" && problem="$problem not both others ended within 15 s"
  if [ -z "$problem" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $what: $problem"
    echo "$said"
  fi
}

died="rank 1 has died or cannot be reached any more"
check "killed" "[.killed]" "$died"
check "exits" "[.exits]" "$died"
check "throws" "[.throws]" "rank 1 left while rank [02] was still waiting for the meeting of rank 1"
check "stops" "[.stops]" "rank [02]: waited 2 s for the meeting of rank 1"
export SLUICE_TEST_MESSAGES=1
check "killed, messages" "[.killed]" "$died"
check "stops, messages" "[.stops]" "rank [02]: waited 2 s for the meeting of rank 1"
echo "test cases: $((passed + failed)) | $passed passed | $failed failed"
[ $failed -eq 0 ]
