#!/bin/bash
# usage: fault_plans.sh PROGRAM: under any fault plan, ranks that mpirun started give the right bits or an error that
# names the fault, and end. Neighbours use messages over TCP, like ranks on two machines.
#
# SLUICE_FAULT_ROUNDS=10 takes ten times as many plans; SLUICE_FAULT_SEED=n takes only plan n.
set -uo pipefail
. "$(dirname "$0")/../../../testing/own_mpi.sh"
program=$1
if ! command -v mpirun > /dev/null; then echo "SKIP: there is no mpirun"; exit 0; fi
if grep -aq __tsan_init "$program"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
export SLUICE_MPI_NEIGHBOURS=${SLUICE_MPI_NEIGHBOURS:-messages}
plans=$((24 * ${SLUICE_FAULT_ROUNDS:-1}))
first=${SLUICE_FAULT_SEED:-0}
last=$((${SLUICE_FAULT_SEED:-$((plans - 1))} + 1))
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
own_mpi "$work"

# ranks, seconds, options of mpirun and command; prints the output only if the status is unexpected
run() {
  timeout -k 5 "$2" mpirun -n "$1" --oversubscribe --bind-to none --mca btl tcp,self "${@:3}" > "$work/said" 2>&1 < /dev/null
}

"$program" list "$first" "$last" > "$work/runs" || exit 1
while read -r how ranks plan; do
  if [ "$how" = together ]; then
    run "$ranks" $((60 + 5 * plans)) "$program" run "$first" "$last" "$work" || { echo "$ranks ranks: status $?"; cat "$work/said"; }
  else
    # with recovery, because mpirun would otherwise kill the survivors before they notice. On a busy machine it did so all
    # the same in 2 of some 600 runs: with status 0, no process left, and no word of the survivors, who say why they end.
    for attempt in first second; do
      run "$ranks" 60 $(go_on) "$program" alone "$plan" "$work"
      status=$?
      [ $status -ne 124 ] && [ $status -ne 137 ] || { echo "FAILED: plan $plan hangs"; cat "$work/said"; exit 1; }
      ! compgen -G "$work/$plan-*" > /dev/null || break
      echo "plan $plan, $attempt attempt: no rank left an end, status $status of mpirun:"
      cat "$work/said"
      ! grep -q '^error: ' "$work/said" || break
    done
  fi
done < "$work/runs"
"$program" judge "$first" "$last" "$work"
