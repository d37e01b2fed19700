#!/bin/sh
# Two 'hosts' on one machine: network namespaces joined by a veth pair, each with its own host name, IPC and /dev/shm, so that nothing
# but the link joins them. linnet-perf runs between them over ucx, started by environment and a shared secret.
#
#   two_hosts.sh BIN_DIR [RATE [RANKS_PER_HOST]] [-- linnet-perf options]     RATE: 1gbit (default), 100mbit, ..., none
#
# BIN_DIR holds linnet-perf and linnet-info. Needs root, iproute2 and util-linux; without them it says so and exits with 77 (skipped).
# Everything it made is taken down at the end, also after a failure or Ctrl-C. Only processes inside its own namespaces are killed.
set -eu

skip() {
    echo "skipped: $*"
    exit 77
}

bin=${1:?usage: two_hosts.sh BIN_DIR [RATE [RANKS_PER_HOST]] [-- linnet-perf options]}
shift
rate=1gbit per_host=1
if [ $# -gt 0 ] && [ "$1" != -- ]; then rate=$1 && shift; fi
if [ $# -gt 0 ] && [ "$1" != -- ]; then per_host=$1 && shift; fi
if [ $# -gt 0 ]; then shift; fi
[ $# -gt 0 ] || set -- --op allreduce --codec f32,sign1 -b 1m -e 16m -f 4 -n 5 -w 1

[ "$(id -u)" = 0 ] || skip "two hosts need root for network namespaces"
for tool in ip tc unshare hostname; do
    command -v $tool >/dev/null || skip "two hosts need $tool (Debian: iproute2, util-linux, hostname)"
done
for part in ucx libsodium; do
    "$bin/linnet-info" -b | grep -Eq "^ +$part +yes" || skip "two hosts need $part: $("$bin/linnet-info" -b | grep -E "^ +$part ")"
done

host_a=lnta$$ host_b=lntb$$
work=$(mktemp -d)
cleanup() {
    trap - EXIT INT TERM HUP
    for host in $host_a $host_b; do
        for pid in $(ip netns pids $host 2>/dev/null); do kill -9 "$pid" 2>/dev/null || :; done
        ip netns del $host 2>/dev/null || :
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'cleanup; exit 130' INT TERM HUP

ip netns add $host_a 2>"$work/why" || skip "network namespaces are not allowed here: $(cat "$work/why")"
# Inside a plain chroot "/" is no mount of its own, and then no namespace can be entered with mounts of its own.
ip netns exec $host_a true 2>"$work/why" || skip "network namespaces cannot be entered here: $(cat "$work/why")"
ip netns add $host_b
ip link add link0 netns $host_a type veth peer name link0 netns $host_b 2>"$work/why" || skip "no veth pair: $(cat "$work/why")"

# The kernel may say a second late that a device runs, and UCX leaves out one that does not.
wait_until() {
    tries=100
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "gave up waiting for: $*"; exit 1; }
        sleep 0.1
    done
}
link_is_up() { ip netns exec "$1" ip link show link0 | grep -q 'state UP'; }
ucx_sees_link() { ip netns exec "$1" ucx_info -d | grep -q link0; }

address=1
for host in $host_a $host_b; do
    ip netns exec $host ip link set lo up
    ip netns exec $host ip address add 10.99.0.$address/24 dev link0
    ip netns exec $host ip link set link0 up
    address=2
done
for host in $host_a $host_b; do
    wait_until link_is_up $host
    if command -v ucx_info >/dev/null; then wait_until ucx_sees_link $host; fi
    [ "$rate" = none ] || ip netns exec $host tc qdisc add dev link0 root tbf rate "$rate" burst 64kb latency 50ms
done

(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
export LINNET_SECRET_FILE="$work/secret" MASTER_ADDR=10.99.0.1 MASTER_PORT=29500 WORLD_SIZE=$((2 * per_host))

# All ranks of a host, from one shell inside it: NAME FIRST_RANK N LINNET_PERF OPTIONS...
cat >"$work/host.sh" <<'HOST'
name=$1 first=$2 n=$3 perf=$4
shift 4
hostname "$name"
mount -t tmpfs tmpfs /dev/shm
pids= code=0 rank=$first
while [ "$rank" -lt $((first + n)) ]; do
    RANK=$rank LOCAL_RANK=$((rank - first)) "$perf" "$@" &
    pids="$pids $!" rank=$((rank + 1))
done
for pid in $pids; do wait "$pid" || code=1; done
exit $code
HOST
echo "# two hosts, $per_host ranks each, link shaped to $rate (tbf, burst 64kb)"
ip netns exec $host_a unshare --uts --ipc --mount sh "$work/host.sh" host-a 0 "$per_host" "$bin/linnet-perf" "$@" &
first=$!
ip netns exec $host_b unshare --uts --ipc --mount sh "$work/host.sh" host-b "$per_host" "$per_host" "$bin/linnet-perf" "$@" &
second=$!
code=0
wait $first || code=1
wait $second || code=1
exit $code
