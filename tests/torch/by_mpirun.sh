#!/bin/bash
# usage: by_mpirun.sh COMMAND [ARGUMENT...]: a rank that mpirun started on one of the machines of two_nodes.sh, with the
# variables of torchrun. Rank 0 is on the first machine, which has the first address of their network.
address=$(ip -o -4 addr show "$(hostname)" | grep -o '[0-9.]*/24')
export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=${address%.*}.1 MASTER_PORT=29500
export GLOO_SOCKET_IFNAME=$(hostname) UCX_TLS=${UCX_TLS:-tcp,self}
export USE_LIBUV=0  # PyTorch 2.6 wants it by default, and Debian 13 builds it without
exec "$@"
