#!/bin/bash
# usage: torchrun.sh SLUICE LAYER   LAYER: a program of 2 ranks
#
# Ranks that PyTorch's launcher starts give the same bits as ranks that are threads, with a given address or one that it
# chose.
set -uo pipefail
sluice=$PWD/$1 layer=$PWD/$2
# PyTorch 1.13 on Python 3.11 does not know its own default of the last two options
torchrun=(/usr/bin/python3 -m torch.distributed.run --no_python --nproc_per_node 2 --redirects 1 --tee 1)
/usr/bin/python3 -c 'import torch.distributed.run' 2> /dev/null || { echo "SKIP: there is no PyTorch"; exit 0; }
if grep -aqE '__(asan|tsan)_init' "$sluice"; then echo "SKIP: the launcher is not instrumented"; exit 0; fi
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT SLUICE_JOB
work=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# PyTorch 2.6 demands libuv, and Debian 13 builds it without
alone=$(timeout 120 "${torchrun[@]}" --log_dir "$work/logs" --standalone true 2>&1)
if [[ "$alone" == *"build without libuv"* ]]; then
  echo "SKIP: torchrun of this PyTorch starts no program: it was built without libuv"
  exit 0
fi

"$sluice" make-inputs "$layer" --out 'in-{rank}' --tokens 33,64 --seed 7 > made || exit 1
"$sluice" run "$layer" --in 'in-{rank}' --out 'threads-{rank}' > threads.txt || exit 1

failed=0
check() { # name, where the launcher finds itself...
  timeout 120 "${torchrun[@]}" --log_dir "$work/logs" "${@:2}" "$sluice" run "$layer" --transport shm --in 'in-{rank}' --out "$1-{rank}" \
    > "$1.txt" 2>&1
  local status=$?
  if [ $status -ne 0 ] || ! cmp "threads-0" "$1-0" || ! cmp "threads-1" "$1-1" || [ "$(grep -Ec '^(\[\w+\]:)?forward ' "$1.txt")" != 1 ]; then
    echo "FAILED: $1: status $status"
    cat "$1.txt"
    failed=$((failed + 1))
  fi
}
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
check told --master_addr 127.0.0.1 --master_port "$port"
check drawn --standalone
echo "test cases: 2 | $((2 - failed)) passed | $failed failed"
[ $failed -eq 0 ]
