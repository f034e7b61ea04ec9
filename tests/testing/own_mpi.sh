# To be sourced by tests that start mpirun: its jobs share no file with another test's.
#
# Open MPI names its files in /tmp and /dev/shm by mpirun's process number, and two sandboxes that run at the same time
# number theirs alike: their jobs then write into each other's shared memory, and crash or hang.

# FOLDER, a new one with a short name (sockets lie in it); the caller removes it
own_mpi() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$1
  export OMPI_MCA_btl_vader_backing_directory=$1 OMPI_MCA_osc_rdma_backing_directory=$1 OMPI_MCA_osc_sm_backing_directory=$1
  # Open MPI 5 refuses some interfaces with an IPv6 address beside that of IPv4; mpirun's options win over this
  export OMPI_MCA_btl_tcp_if_include=lo
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0  # Open MPI keeps what it allocates
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

# prints the options that tell mpirun to let ranks go on where one has died
go_on() {
  # MPI itself ends the survivors in Open MPI 5 where nobody asks for its faults to be errors
  if [[ "$(mpirun --version)" == *"(Open MPI) 5"* ]]; then echo "--with-ft ulfm"; else echo "--enable-recovery"; fi
}
