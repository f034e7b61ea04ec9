#!/bin/bash
# usage: two_nodes.sh [--rate RATE] [--per-node N] [--own-cores yes] [--mpirun "OPTIONS"] PROGRAM [ARGUMENT...]
#
# Runs a program by mpirun as ranks of two machines: two network namespaces joined by a pair of veth, with separate host
# names, so that ranks of different namespaces reach each other only by TCP. --rate: tc's token bucket in both directions
# (1gbit). --own-cores: each has half of the cores; otherwise both have all, so that their workers are bound to the same
# first ones. Prints SKIP and ends with 0 if that is not permitted. Leaves nothing behind.
set -uo pipefail
. "$(dirname "$0")/../../testing/own_mpi.sh"
rate="" per_node=1 options="" own_cores=""
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --rate) rate=$2 ;;
    --own-cores) own_cores=$2 ;;
    --per-node) per_node=$2 ;;
    --mpirun) options=$2 ;;
    *) echo "two_nodes: error: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift 2
done

skip() { echo "SKIP: $1"; exit 0; }
for tool in mpirun unshare; do command -v $tool > /dev/null || skip "there is no $tool"; done
if [[ "$options" == *"pml ucx"* ]]; then
  why=$(why_without "pml ucx")
  [ -z "$why" ] || skip "$why"
fi

# ThreadSanitizer does not see how MPI's own threads and memory agree
if grep -aq __tsan_init "$1" 2> /dev/null; then skip "MPI is not instrumented"; fi

. "$(dirname "$0")/../../testing/two_namespaces.sh"
make_namespaces "$rate"
bind_cores "$own_cores"

# in place of ssh: HOST COMMAND... in that host's network, with its name
cat > "$work/agent" << AGENT
#!/bin/bash
host=\$1; shift
if [ "\$host" = "$a" ]; then bind="$bind_a"; else bind="$bind_b"; fi
exec ip netns exec "\$host" \$bind unshare --uts bash -c "hostname \$host; \$*"
AGENT
chmod +x "$work/agent"

own_mpi "$work"
# a private view of /etc/hosts: mpirun and its daemons look the names up there
# shellcheck disable=SC2086
unshare --mount bash -c 'mount --bind "$1" /etc/hosts; shift; exec "$@"' - "$work/hosts" \
  "$work/agent" "$a" exec timeout -k 10 "${SLUICE_TEST_SECONDS:-120}" mpirun --mca plm_rsh_agent "$work/agent" \
  --mca btl_tcp_if_include "$net.0/24" --mca oob_tcp_if_include "$net.0/24" -H "$a:$per_node,$b:$per_node" \
  -n $((2 * per_node)) --oversubscribe --bind-to none $options "$@" < /dev/null
exit $?
