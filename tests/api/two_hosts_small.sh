#!/bin/sh
# perf/two_hosts.sh as a functional test: every operation and codec between two hosts over ucx, small sizes; nothing is left behind.
# two_hosts_small.sh TWO_HOSTS BIN_DIR; exit 77 where network namespaces are not allowed.
set -u
sh "$1" "$2" 1gbit 2 -- --op all --codec all -b 100 -e 40000 -f 400 -n 1 -w 0 >two_hosts.txt 2>&1 &
rig=$!
wait $rig
code=$?
cat two_hosts.txt
[ $code = 77 ] && exit 77
[ $code = 0 ] || exit 1
grep -q 'ranks 4, nodes 2 (0,0,1,1), hier; transports: shm inside a node, ucx between nodes' two_hosts.txt || exit 1
grep -q 'Out of bounds values : 0 OK' two_hosts.txt || exit 1
if ip netns list | grep -E "lnt[ab]$rig( |$)"; then
    echo "a namespace was left behind"
    exit 1
fi
