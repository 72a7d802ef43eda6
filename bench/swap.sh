#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# swap.sh DIRECTORY SWAP_MIB LIMIT_MIB COMMAND...: runs COMMAND with a swap file in DIRECTORY switched on and
# BENCH_CGROUP naming a memory cgroup of LIMIT_MIB. Where that cannot be had, COMMAND runs all the same and
# BENCH_NO_SWAP says why. Whatever happens, the swap file is switched off and removed, and so is the cgroup; what a
# SIGKILL left is removed first. COMMAND may change how many pages swap reads at a time: /proc/sys/vm/page-cluster is
# put back when this script has ended, by a process that outlives it.
set -euo pipefail

directory=$1 swap_mib=$2 limit_mib=$3
shift 3
file=$directory/tiermesh-bench.swap
cgroup=
pid=
cluster=/proc/sys/vm/page-cluster
cluster_before=$directory/tiermesh-bench.page-cluster # is there as long as what it says must be put back

cluster_restore() {
    [ -e "$cluster_before" ] || return 0
    cat "$cluster_before" >"$cluster" && rm -f "$cluster_before"
}

# The end of the last writer of `alive`, which is this script alone, ends the read.
cluster_watch() {
    cluster_restore
    cat "$cluster" >"$cluster_before.new" && mv "$cluster_before.new" "$cluster_before"
    exec {alive}> >(
        trap '' INT TERM HUP
        read -r _ || true
        cluster_restore
    )
    watcher=$!
}

swap_remove() {
    if [ -e "$file" ]; then
        ! grep -qF "$(realpath "$file") " /proc/swaps || swapoff "$file" || return 1
        rm -f "$file"
    fi
}

clean_up() {
    trap '' INT TERM HUP
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" || true
    fi
    # A killed child leaves its cgroup a moment after it ended.
    for _ in $(seq 50); do
        [ -n "$cgroup" ] && [ -d "$cgroup" ] && ! rmdir "$cgroup" 2>/dev/null || break
        sleep 0.1
    done
    swap_remove || echo "swap.sh: $file is still switched on" >&2
    if [ -n "${alive:-}" ]; then
        exec {alive}>&-
        wait "$watcher" || true
    fi
}

# The sentence why there can be no swap, or nothing.
refusal() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "not root: a swap file and a memory cgroup cannot be made"
    elif ! swap_remove 2>/dev/null; then
        echo "an old swap file cannot be switched off"
    elif ! dd if=/dev/zero of="$file" bs=1M count="$swap_mib" status=none 2>/dev/null; then
        echo "no room for a swap file of $swap_mib MiB"
    elif ! chmod 600 "$file" || ! mkswap "$file" >/dev/null 2>&1; then
        echo "mkswap failed on the swap file"
    elif ! swapon "$file" 2>/dev/null; then
        echo "swapon is refused here"
    fi
}

# Sets cgroup, or why.
cgroup_make() {
    local root name=tiermesh-bench
    if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
        root=/sys/fs/cgroup/memory
    elif [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        root=/sys/fs/cgroup
        echo +memory >"$root/cgroup.subtree_control" 2>/dev/null || true
    else
        why="no memory cgroup is mounted"
        return
    fi
    mkdir -p "$root/$name" 2>/dev/null || true
    local limit=$root/$name/memory.max
    [ -e "$limit" ] || limit=$root/$name/memory.limit_in_bytes
    if ! echo $((limit_mib << 20)) 2>/dev/null >"$limit"; then
        rmdir "$root/$name" 2>/dev/null || true
        why="a memory cgroup cannot be made"
        return
    fi
    cgroup=$root/$name
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

why=$(refusal)
[ -n "$why" ] || cgroup_make
if [ -n "$why" ]; then
    export BENCH_NO_SWAP="$why"
else
    export BENCH_CGROUP="$cgroup"
    cluster_watch
fi
# In the background, so that a signal reaches this script at once.
if [ -n "${alive:-}" ]; then
    "$@" {alive}>&- &
else
    "$@" &
fi
pid=$!
status=0
wait "$pid" || status=$?
pid=
exit "$status"
