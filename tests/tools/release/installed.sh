#!/bin/bash
# usage: installed.sh FOLDER   what tools/release has put into the folder is installed, used and removed. Run it on a bare
# machine (tools/ci/debian --bare): it installs packages.
set -euo pipefail
package=$(realpath "$1"/sluice_*.deb) wheel=$(ls "$1"/sluice_torch-*.whl 2> /dev/null | xargs -r realpath)
cd "$(mktemp -d)"
passed=0 failed=0
check() { # NAME COMMAND...
  if "${@:2}" > said 2>&1; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "FAILED: $1"
    tail -n 20 said
  fi
}
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" > apt.log 2>&1 || { tail -n 5 apt.log; exit 1; }; }
list_files() { find / -xdev \( -path /tmp -o -path /var -o -path /run -o -path "$PWD" \) -prune -o -print | sort > "$1"; }

layer() { # README's first commands
  sluicec /usr/share/sluice/graphs/moe_ffn/train.json --set ep=2 --set experts=8 --set top_k=2 --set hidden=64 \
    --set intermediate=48 -o layer.slp &&
    sluice make-inputs layer.slp --out 'in-{rank}.safetensors' --tokens ragged:100 --routing zipf:1.2 &&
    sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' &&
    sluice check layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'
}
in_c() {
  sluicec /usr/share/sluice/graphs/moe_ffn/train.json --set ep=1 --set experts=8 --set top_k=2 --set hidden=64 \
    --set intermediate=48 --set max_tokens=64 -o one.slp &&
    cc /usr/share/doc/sluice/examples/embed.c $(pkg-config --cflags --libs sluice) -lm -o embed && ./embed one.slp
}
in_pytorch() {
  python3 -c 'import torch, sluice_torch
layer = sluice_torch.MoE(64, 32, 4, 2)
x = torch.randn(9, 64).bfloat16().requires_grad_()
layer(x, torch.tensor([[1, 3]] * 9), torch.ones(9, 2)).sum().backward()
assert x.grad.abs().sum() > 0'
}
same_files() { list_files after && diff before after; }

apt-get update -q > apt.log
began=$SECONDS
install "$package"
check "a layer of the first commands of README" layer
echo "from files to a verified result: $((SECONDS - began)) s"
check "doctor" sluice doctor
install gcc libc6-dev pkg-config
check "the example in C" in_c
if [ -n "$wheel" ]; then
  install python3-torch python3-pip
  python3 -m pip install -q --no-index --no-deps --break-system-packages --root-user-action ignore "$wheel" 2> pip.log || { cat pip.log; exit 1; }
  check "a layer in PyTorch" in_pytorch
  python3 -m pip uninstall -q -y --break-system-packages --root-user-action ignore sluice-torch
fi
check "an installation over the one that is there" apt-get install -y -q --reinstall "$package"
check "the layer again" layer
apt-get purge -y -q sluice > apt.log
list_files before
install "$package"
apt-get purge -y -q sluice > apt.log
check "nothing is left" same_files
check "no file of the first time is left" bash -c '! grep -E "sluice" before | grep -Ev "^/(sluice|root/.cache)"'
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
