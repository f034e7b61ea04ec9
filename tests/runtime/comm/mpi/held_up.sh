#!/bin/bash
# usage: held_up.sh PROGRAM: in whichever call of MPI one of three ranks is held up, the others end within their limit.
set -uo pipefail
. "$(dirname "$0")/../../../testing/own_mpi.sh"
program=$PWD/$1
if ! command -v mpirun > /dev/null; then echo "SKIP: there is no mpirun"; exit 0; fi
if grep -aqE '__(asan|tsan)_init' "$program"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# as itself, so that its process number is known
cat > rank << 'SCRIPT'
#!/bin/bash
mkdir -p "$2.$3"
echo $$ > "$2.$3/pid.$OMPI_COMM_WORLD_RANK"
exec "$@"
SCRIPT
chmod +x rank

run() { # MODE CALL: ended.MODE.CALL where the other ranks ended by themselves
  own_mpi "$(mktemp -d "$work/XXXXXX")"  # jobs that start at the same time make the same folders in it, and fail
  timeout -k 5 120 mpirun -n 3 --oversubscribe --bind-to none ./rank "$program" "$1" "$2" > "said.$1.$2" 2>&1 < /dev/null &
  await_ranks $! "$PWD/$1.$2" 90 0 2 && touch "ended.$1.$2"
  wait $!
  echo $? > "status.$1.$2"
}

passed=0 failed=0
check() { # MODE CALL PATTERN
  local problem=""
  [ -e "ended.$1.$2" ] || problem="other ranks did not end;"
  [ "$(cat "status.$1.$2")" != 0 ] || problem="status 0;"
  grep -Eq "$3" "said.$1.$2" || problem="$problem expected '$3'"
  if [ -z "$problem" ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: $1 $2: $problem"
    cat "said.$1.$2"
  fi
}

calls="MPI_Init_thread MPI_Comm_dup MPI_Win_create_dynamic MPI_Win_attach MPI_Win_free MPI_Finalize"
for call in $calls; do run stop "$call" & done
run none - &
run block MPI_Win_attach &
wait

if [ "$(cat status.none.-)" = 0 ]; then passed=1; else failed=1; cat said.none.-; fi
check block MPI_Win_attach "waited 5 s until other ranks can reach new memory"
check stop MPI_Init_thread "rank [02]: waited 25 s in MPI_Init;"
check stop MPI_Comm_dup "rank [02]: waited 25 s in the first calls of MPI to all ranks;"
check stop MPI_Win_create_dynamic "rank [02]: waited 25 s in the meeting of all ranks;"
check stop MPI_Win_attach "rank [02]: waited 5 s for rank [0-2] to make symmetric allocation 0"
# that rank has been told that both others leave; but one of them may hang in the call that tells it, before it tells the
# other, and knows of neither then
check stop MPI_Win_free \
  "rank [02]: waited (25 s in the end of MPI;|5 s for other ranks to end; still there: rank( 1)? [02])"
check stop MPI_Finalize "rank [02]: waited 25 s in the end of MPI;"
echo "test cases: $((passed + failed)) | $passed passed | $failed failed"
[ $failed -eq 0 ]
