#!/bin/bash
# usage: mpi_stopped.sh SLUICE_MPI LAYER   LAYER: of 4 ranks
#
# A rank that is stopped before or while MPI starts, or in a step: the others name the call or event for which they waited,
# the job ends, and each of the others leaves a trace of the step.
set -uo pipefail
. "$(dirname "$0")/../../testing/own_mpi.sh"
mpi=$PWD/$1 layer=$PWD/$2
command -v mpirun > /dev/null || { echo "SKIP: there is no mpirun"; exit 0; }
# instrumented programs report what MPI itself never frees
if grep -aqE '__(asan|tsan)_init' "$mpi"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# RANK WHEN COMMAND...: stops that rank before its start (0), so many seconds after it, or when all ranks are in their
# steps ("steps"): when a worker of each, not its first thread, has computed for 0.2 s
cat > stop_at << 'SCRIPT'
#!/bin/bash
victim=$1 when=$2; shift 2
mkdir -p "$when"
echo $$ > "$when/pid.$OMPI_COMM_WORLD_RANK"
await_steps() {
  local rank pid
  for rank in 0 1 2 3; do
    until pid=$(cat "$when/pid.$rank" 2> /dev/null) &&
        awk '/^[0-9]+ \(sluice-core-1\)/ && $14 + $15 >= 20 {found = 1} END {exit !found}' /proc/"$pid"/task/*/stat 2> /dev/null
    do
      kill -0 $$ 2> /dev/null || exit
      sleep 0.1
    done
  done
}
if [ "$OMPI_COMM_WORLD_RANK" = "$victim" ]; then
  case $when in
    0) kill -STOP $$ ;;
    steps) (await_steps; kill -STOP $$) & ;;
    *) (sleep "$when"; kill -STOP $$) & ;;
  esac
fi
exec "$@"
SCRIPT
chmod +x stop_at

run() { # RANK WHEN: errors in errors.WHEN; ended.WHEN where the other ranks ended by themselves
  own_mpi "$(mktemp -d "$work/XXXXXX")"  # jobs that start at the same time make the same folders in it, and fail
  timeout -k 5 120 mpirun -n 4 --oversubscribe --bind-to none ./stop_at "$1" "$2" "$mpi" run "$layer" --seed 1 --threads 2 \
    --repeat 100000 --timeout 2 --on-hang "trace=$PWD/hang.$2.{rank}" > "out.$2" 2> "errors.$2" &
  await_ranks $! "$PWD/$2" 90 $(seq 0 3 | grep -v "$1") && touch "ended.$2"
  wait $!
  echo $? > "status.$2"
}

failed=0
check() {
  "${@:2}" || { echo "FAILED: $1"; failed=1; }
}
run 2 steps  # alone, so that a busy machine does not exceed the limit of its start
for at in 0:2 0.05:1 0.15:0 0.4:3; do run "${at#*:}" "${at%:*}" & done
wait
for when in 0 0.05 0.15 0.4 steps; do
  status=$(cat "status.$when")
  check "the other ranks end by themselves (stopped: $when)" test -e "ended.$when"
  check "and the job has failed" test "$status" != 0
  # in the start of MPI, in the meeting of the ranks, or in a step
  check "an error says what was waited for (stopped: $when): $(cat "errors.$when")" \
    grep -qE 'error: .*rank [0-3].*(waited|is stopped|has died)|error: rank [0-3]: waited' "errors.$when"
done
# mpirun ends none before its file is there
check "the others leave what they did until then: $(cat errors.steps)" test -s hang.steps.0 -a -s hang.steps.1 -a -s hang.steps.3
check "and say where: $(cat errors.steps)" grep -q 'did until then is in' errors.steps
check "a rank that never starts holds up the start: $(cat errors.0)" \
  grep -qE 'error: rank [013]: waited 22 s in MPI_Init; another rank is stopped' errors.0
exit $failed
