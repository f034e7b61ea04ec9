#!/bin/bash
# usage: two_machines.sh [--rate RATE] [--per-node N] [--own-cores yes] SCRIPT.py|PROGRAM [ARGUMENT...]
#
# Runs a script or program by torchrun --nnodes 2: the machines are two network namespaces (tests/testing/two_namespaces.sh). --rate:
# of their link, in tc's format (1gbit). --own-cores: each machine has half of the cores. Prints SKIP and ends with 0 if
# that is not permitted. Status 1 if a rank failed.
set -uo pipefail
rate="" per_node=1 own_cores=""
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --rate) rate=$2 ;;
    --per-node) per_node=$2 ;;
    --own-cores) own_cores=$2 ;;
    *) echo "two_machines: error: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
skip() { echo "SKIP: $1"; exit 0; }
/usr/bin/python3 -c 'import torch.distributed.run' 2> /dev/null || skip "there is no PyTorch"
. "$(dirname "$0")/../testing/two_namespaces.sh"
make_namespaces "$rate"
bind_cores "$own_cores"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
python=""
[[ "$1" == *.py ]] || python=--no_python
# on real machines UCX would not find the shared memory of this one
export UCX_TLS=${UCX_TLS:-tcp,self} PYTHONUNBUFFERED=1

node() { # its number, namespace, commands before
  # PyTorch 1.13 on Python 3.11 does not know its own default of --redirects and --tee
  GLOO_SOCKET_IFNAME=$2 ip netns exec "$2" $3 timeout -k 10 "${SLUICE_TEST_SECONDS:-120}" \
    /usr/bin/python3 -m torch.distributed.run --nnodes 2 --node_rank "$1" --nproc_per_node "$per_node" $python \
    --master_addr "$net.1" --master_port 29500 --redirects 1 --tee 1 --log_dir "$work/logs.$1" "${@:4}" \
    > "$work/said.$1" 2>&1 < /dev/null
}
node 0 "$a" "$bind_a" "$@" &
first=$!
node 1 "$b" "$bind_b" "$@"
status=$?
wait $first || status=1
# PyTorch 2.6 demands libuv, and Debian 13 builds it without
if grep -q "build without libuv" "$work"/said.*; then skip "torchrun of this PyTorch was built without libuv"; fi
cat "$work"/said.*
[ $status -eq 0 ]
