#!/bin/bash
# Sourced by scripts that run something on two machines: two network namespaces joined by a pair of veth, so that
# processes of different namespaces reach each other only over that network. The script has skip(), which ends it with a
# word where namespaces are not permitted. Sets traps: nothing is left behind.

# names of this run, because others may be running. The kernel allows 15 letters for an interface.
id=$(printf '%05x%03x' $(($$ & 0xfffff)) $((RANDOM & 0xfff)))
a=sl${id}a b=sl${id}b  # the namespaces, and their interfaces
net=10.$((RANDOM % 200 + 20)).$((RANDOM % 250 + 1))  # their addresses are $net.1 and $net.2
work=$(mktemp -d /tmp/sl_XXXXXX)
remove_namespaces() {
  ip netns del "$a" 2> /dev/null
  ip netns del "$b" 2> /dev/null
  ip link del "$a" 2> /dev/null
  rm -rf "$work"
}
trap remove_namespaces EXIT
trap 'exit 130' INT TERM

# [RATE]: tc's token bucket in both directions (1gbit). Also writes $work/hosts, for /etc/hosts.
make_namespaces() {
  local rate=${1:-} number=1 tool node
  [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
  for tool in ip tc; do command -v $tool > /dev/null || skip "there is no $tool"; done
  ip netns add "$a" 2> "$work/why" && ip netns add "$b" 2>> "$work/why" ||
    skip "network namespaces are not permitted: $(tail -1 "$work/why")"
  ip link add "$a" type veth peer name "$b" 2> "$work/why" || skip "no veth: $(tail -1 "$work/why")"
  for node in "$a" "$b"; do
    ip link set "$node" netns "$node"
    ip -n "$node" addr add "$net.$number/24" dev "$node"
    ip -n "$node" link set "$node" up
    ip -n "$node" link set lo up
    echo "$net.$number $node" >> "$work/hosts"
    if [ -n "$rate" ]; then
      ip netns exec "$node" tc qdisc add dev "$node" root tbf rate "$rate" burst 128kb latency 20ms ||
        skip "tc cannot limit the rate"
    fi
    number=$((number + 1))
  done
  echo "127.0.0.1 localhost" >> "$work/hosts"
}

# yes|"": sets bind_a and bind_b, before the commands of each namespace, so that each has half of the cores.
bind_cores() {
  local half=$(($(nproc) / 2))
  bind_a="" bind_b=""
  if [ -n "$1" ] && [ "$half" -gt 0 ]; then
    bind_a="taskset -c 0-$((half - 1))" bind_b="taskset -c $half-$((2 * half - 1))"
  fi
}
