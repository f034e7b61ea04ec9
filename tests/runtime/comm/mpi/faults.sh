#!/bin/bash
# usage: faults.sh PROGRAM: a rank that dies, exits, throws or stops ends the job with a status and a message that names
# it, and leaves nothing.
set -uo pipefail
. "$(dirname "$0")/../../../testing/own_mpi.sh"
program=$1
if ! command -v mpirun > /dev/null; then echo "SKIP: there is no mpirun"; exit 0; fi
if grep -aq __tsan_init "$program"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
# a copy with its own name, so that its remains can be distinguished from others' processes
work=$(mktemp -d /tmp/sl_XXXXXX)
mine=$work/ranks_$$
cp "$program" "$mine"
trap 'rm -rf "$work"' EXIT
own_mpi "$work"
passed=0 failed=0

# what CASE PATTERN [MPIRUN OPTIONS...]
check() {
  local what=$1 case=$2 pattern=$3 started=$SECONDS
  shift 3
  timeout -k 5 60 mpirun -n 3 --oversubscribe --bind-to none "$@" "$mine" "$case" > "$work/said" 2>&1 < /dev/null
  local status=$?
  local problem=""
  # with recovery mpirun has its own status
  { [ $status -ne 0 ] || [[ "$what" == *"goes on" ]]; } && [ $status -ne 124 ] || problem="status $status"
  grep -Eq "$pattern" "$work/said" || problem="$problem; nothing said like '$pattern'"
  [ $((SECONDS - started)) -lt 15 ] || problem="$problem; it took $((SECONDS - started)) s"
  pgrep -f "$mine" > /dev/null && problem="$problem; processes are left" && kill -KILL $(pgrep -f "$mine")
  if [ -z "$problem" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $what: $problem"
    cat "$work/said"
  fi
}

# Open MPI 5 puts the signal on the next line
killed="rank 1 .*(signal 9|exited on$)"
check "killed" "[.killed]" "$killed"
check "exits" "[.exits]" "rank:? 1|rank 1|\],1\]"
check "throws" "[.throws]" "of purpose"
check "stops" "[.stops]" "waited 2 s for the meeting of (rank 1|ranks [0-9, ]*1)"
SLUICE_TEST_MESSAGES=1 check "killed, messages" "[.killed]" "$killed"
SLUICE_TEST_MESSAGES=1 check "stops, messages" "[.stops]" "waited 2 s for the meeting of (rank 1|ranks [0-9, ]*1)"
# with recovery the survivors notice by themselves
check "killed, mpirun goes on" "[.killed]" "SURVIVOR (0|2): rank 1 .*died" $(go_on)
# an engine that would crash at the end of a window is refused before the first window
if ompi_info --parsable | grep '^mca:osc:ucx:version:"component:4' > /dev/null; then
  check "windows of UCX itself" "posts to one*" "found Open MPI's engine ucx for windows" --mca pml ucx --mca osc ucx
fi
echo "test cases: $((passed + failed)) | $passed passed | $failed failed"
[ $failed -eq 0 ]
