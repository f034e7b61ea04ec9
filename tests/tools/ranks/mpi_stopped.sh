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

# RANK SECONDS COMMAND...: stops that rank this long after its start; 0: before it
cat > stop_at << 'SCRIPT'
#!/bin/bash
victim=$1 seconds=$2; shift 2
mkdir -p "$seconds"
echo $$ > "$seconds/pid.$OMPI_COMM_WORLD_RANK"
if [ "$OMPI_COMM_WORLD_RANK" = "$victim" ]; then
  if [ "$seconds" = 0 ]; then kill -STOP $$; else (sleep "$seconds"; kill -STOP $$) & fi
fi
exec "$@"
SCRIPT
chmod +x stop_at

run() { # RANK SECONDS: errors in errors.SECONDS; ended.SECONDS where the other ranks ended by themselves
  own_mpi "$(mktemp -d "$work/XXXXXX")"  # jobs that start at the same time make the same folders in it, and fail
  timeout -k 5 120 mpirun -n 4 --oversubscribe --bind-to none ./stop_at "$1" "$2" "$mpi" run "$layer" --seed 1 \
    --repeat 100000 --timeout 2 --on-hang "trace=$PWD/hang.$2.{rank}" > "out.$2" 2> "errors.$2" &
  await_ranks $! "$PWD/$2" 90 $(seq 0 3 | grep -v "$1") && touch "ended.$2"
  wait $!
  echo $? > "status.$2"
}

failed=0
check() {
  "${@:2}" || { echo "FAILED: $1"; failed=1; }
}
for at in 0:2 0.05:1 0.15:0 0.4:3 4:2; do run "${at#*:}" "${at%:*}" & done
wait
for seconds in 0 0.05 0.15 0.4 4; do
  status=$(cat "status.$seconds")
  check "the other ranks end by themselves, $seconds s after the start" test -e "ended.$seconds"
  check "and the job has failed" test "$status" != 0
  # in the start of MPI, in the meeting of the ranks, or in a step
  check "an error says what was waited for, $seconds s after the start: $(cat "errors.$seconds")" \
    grep -qE 'error: .*rank [0-3].*(waited|is stopped|has died)|error: rank [0-3]: waited' "errors.$seconds"
done
# after 4 s all ranks are in their steps; mpirun ends none before its file is there
check "the others leave what they did until then: $(cat errors.4)" test -s hang.4.0 -a -s hang.4.1 -a -s hang.4.3
check "and say where: $(cat errors.4)" grep -q 'did until then is in' errors.4
check "a rank that never starts holds up the start: $(cat errors.0)" \
  grep -qE 'error: rank [013]: waited 22 s in MPI_Init; another rank is stopped' errors.0
exit $failed
