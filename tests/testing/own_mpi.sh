# To be sourced by tests that start mpirun: its jobs share no file with those of another test.
#
# Open MPI names its files in /tmp and /dev/shm by mpirun's process number, and two sandboxes that run at the same time
# use the same numbers: their jobs then write into each other's shared memory, and crash or hang.

# FOLDER, a new one with a short name (it contains sockets); the caller removes it
own_mpi() {
  # Open MPI 5 does not start without a home; neither version needs the user's settings in it
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$1 HOME=$1
  export OMPI_MCA_btl_vader_backing_directory=$1 OMPI_MCA_osc_rdma_backing_directory=$1 OMPI_MCA_osc_sm_backing_directory=$1
  # Open MPI 5 refuses some interfaces that have an IPv6 address besides the IPv4 one; mpirun's options override this
  export OMPI_MCA_btl_tcp_if_include=lo
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0  # Open MPI does not free its memory
}

# ENGINE ("pml ucx"): prints why ranks of this Open MPI cannot use it, if they cannot
why_without() {
  local info
  info=$(ompi_info --parsable)
  if ! grep -q "^mca:${1/ /:}:version" <<< "$info"; then
    echo "this Open MPI has no $1"
  elif grep -q '^ompi:version:full:5' <<< "$info"; then
    echo "Open MPI 5 has no windows with $1"
  fi
}

# prints the options with which mpirun lets the other ranks continue after one has died
go_on() {
  # Open MPI 5 itself ends the survivors unless its faults are requested as errors
  if [[ "$(mpirun --version)" == *"(Open MPI) 5"* ]]; then echo "--with-ft ulfm"; else echo "--enable-recovery"; fi
}

# MPIRUN FOLDER SECONDS RANK...: waits until those ranks, whose process numbers are in FOLDER/pid.RANK, have ended, and
# ends mpirun, which in Open MPI 4.1 sometimes hangs after ranks have failed. Fails if a rank is still running after
# that time, and prints where its threads were.
await_ranks() {
  local mpirun=$1 folder=$2 until=$((SECONDS + $3)) rank pid thread running
  shift 3
  while true; do
    running=
    for rank in "$@"; do
      pid=$(cat "$folder/pid.$rank" 2> /dev/null) || { running+=" $rank"; continue; }
      grep -qsE '^State:[[:space:]]+[^ZX[:space:]]' "/proc/$pid/status" && running+=" $rank"
    done
    [ -n "$running" ] && [ $SECONDS -lt $until ] || break
    sleep 0.2
  done
  for rank in $running; do
    pid=$(cat "$folder/pid.$rank" 2> /dev/null) || { echo "rank $rank never started"; continue; }
    echo "rank $rank still runs: $(grep State: "/proc/$pid/status")"
    for thread in "/proc/$pid/task/"*; do
      echo "  $(cat "$thread/comm"): wchan $(cat "$thread/wchan"), system call $(cut -d' ' -f1 "$thread/syscall")"
    done
    command -v gdb > /dev/null && timeout 20 gdb -p "$pid" -batch -ex 'thread apply all bt' 2>&1 | grep -E '^(#|Thread)'
  done
  for _ in $(seq 1 50); do kill -0 "$mpirun" 2> /dev/null && sleep 0.2; done
  kill "$mpirun" 2> /dev/null && echo "mpirun went on after the ranks had ended: ended"
  [ -z "$running" ]
}
