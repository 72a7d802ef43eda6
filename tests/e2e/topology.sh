#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# topology.sh DSMRUN DSMCTL NODE CASE: by which transport two nodes of this host reach each other, and what dsmctl says
# of it. `rdma` needs a device with the address in TIERMESH_TEST_ADDRESS; the others are for hosts with or without one.
set -euo pipefail

dsmrun=$1
dsmctl=$2
node=$3
case=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    printf 'FAILED %s: %s\n' "$case" "$*" >&2
    sed 's/^/out: /' "$scratch/out" >&2
    sed 's/^/err: /' "$scratch/err" >&2
    exit 1
}

# job ARGUMENTS...: two nodes; their topology is in $scratch/out, their log lines in $scratch/err.
job() {
    timeout 50 "$dsmrun" -n 2 "$@" -- "$node" "$dsmctl" >"$scratch/out" 2>"$scratch/err" </dev/null ||
        fail "the job ended with $?"
}

# says NODE WORDS: the line of node 0 or 1 about the other one has them. Other jobs of this user may be listed too.
says() {
    grep -qE "^  node $((1 - $1)): .*$2" "$scratch/out" || fail "node $1 does not say '$2'"
}

# pool_refused SENTENCE ARGUMENTS...
pool_refused() {
    local sentence=$1
    shift
    if timeout 50 "$dsmrun" -n 2 --transport pool "$@" -- "$node" "$dsmctl" >"$scratch/out" 2>"$scratch/err" \
        </dev/null; then
        fail "the job ran"
    fi
    grep -qE "$sentence" "$scratch/err" || fail "not '$sentence'"
}

case $case in
shm)
    job
    for i in 0 1; do says "$i" 'shm .both nodes are on this host'; done
    ;;
tcp)
    job --transport tcp
    for i in 0 1; do says "$i" 'tcp .option transport asks for it.$'; done
    ;;
# A file in place of memory that hosts share. What is no pool for two nodes is refused with a sentence.
pool)
    truncate -s 12M "$scratch/pool"
    job --transport pool --set pool="$scratch/pool"
    for i in 0 1; do says "$i" 'pool .option transport asks for it.$'; done
    truncate -s 11M "$scratch/pool"
    pool_refused 'pool .*/pool has 11 MiB, and 2 nodes need 12 MiB' --set pool="$scratch/pool"
    pool_refused 'option pool must name the memory'
    ;;
# An address that no RDMA device can have, so this holds on every host: it is told once a node, and the job goes on.
fallback)
    job --transport verbs --set bind=127.0.0.1
    for i in 0 1; do says "$i" 'tcp .*; RDMA: '; done
    [ "$(grep -c 'RDMA: .*using TCP' "$scratch/err")" = 2 ] || fail "not one line a node about it"
    ;;
# Asked for nothing, it says nothing, and does not complain of limits of memory that nobody wanted to lock.
quiet)
    ulimit -l 64
    job --set log=warning
    if grep -q RDMA "$scratch/err"; then fail "complains of RDMA"; fi
    ;;
stale)
    job
    [ -z "$("$dsmctl" topology | grep -F "process $$ ")" ] || fail "a process that is no node is listed"
    status=0
    "$dsmctl" topology $$ >"$scratch/out" 2>"$scratch/err" || status=$?
    [ $status = 69 ] || fail "exit status $status for a process that is no node"
    grep -q 'not a node of a job of several' "$scratch/err" || fail "no sentence"
    ;;
rdma)
    if [ -z "${TIERMESH_TEST_ADDRESS:-}" ] || [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
        echo "SKIPPED, nothing of RDMA was tested: no device, or TIERMESH_TEST_ADDRESS is not set" >&2
        exit 77
    fi
    job --transport verbs --set bind="$TIERMESH_TEST_ADDRESS"
    for i in 0 1; do says "$i" 'verbs: [a-z0-9_]+ port [0-9]+, gid [0-9]+.*, mtu [0-9]+ .option transport asks'; done
    if grep -q 'RDMA' "$scratch/err"; then fail "complains of RDMA"; fi
    ;;
*)
    fail "no such case"
    ;;
esac
echo "topology $case: ok"
