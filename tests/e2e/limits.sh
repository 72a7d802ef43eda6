#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# limits.sh CASE COMMAND...: budgets that follow the memory cgroup. COMMAND is limits.c, filling 120 MiB with a budget
# of 256 MiB and an nvme tier of 256M. A group is made below this process's own, and removed again.
set -euo pipefail

case=$1
shift
command=("$@")
group=
pid=
own=
scratch=$(mktemp -d "$PWD/limits.XXXXXX")
cd "$scratch"

skip() {
    echo "skipped: $*" >&2
    exit 77
}

fail() {
    echo "FAILED $case: $*" >&2
    cat err >&2
    exit 1
}

clean_up() {
    if [ -n "$pid" ]; then
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    # A killed process leaves its group a moment after it ended.
    for _ in $(seq 50); do
        [ -n "$group" ] && [ -d "$group" ] && ! rmdir "$group" 2>/dev/null || break
        sleep 0.1
    done
    cd / && rm -rf "$scratch"
}
trap clean_up EXIT

# Sets own: the directory of this process's memory cgroup, and limit: the name of the file in a group.
own_find() {
    local path
    path=$(sed -n 's/^[0-9]*:\([a-z_]*,\)*memory\(,[a-z_]*\)*://p' /proc/self/cgroup)
    if [ -n "$path" ] && [ -d /sys/fs/cgroup/memory ]; then
        own=/sys/fs/cgroup/memory$path limit=memory.limit_in_bytes usage=memory.usage_in_bytes
    else
        path=$(sed -n 's/^0:://p' /proc/self/cgroup)
        own=/sys/fs/cgroup$path limit=memory.max usage=memory.current
    fi
}

# group_make MIB
group_make() {
    own_find
    mkdir "$own/tiermesh-test-$$" 2>/dev/null || skip "no memory cgroup can be made below $own"
    group=$own/tiermesh-test-$$
    echo $(($1 << 20)) 2>/dev/null >"$group/$limit" || skip "the memory controller is not there for groups below $own"
}

# Starts COMMAND in the group. It reads from descriptor 3 and writes to descriptor 4.
start() {
    mkfifo in out
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec env DSM_DDR=256M DSM_NVME="256M:$scratch" "${command[@]}" 120 <in >out 2>err
    ) &
    pid=$!
    exec 3>in 4<out
    says filled
}

says() {
    local word
    if ! IFS= read -r -t 60 -u 4 word; then
        local status=0
        wait "$pid" || status=$?
        pid=
        [ "$status" -ne 77 ] || skip "$(cat err)"
        fail "it ended with status $status before it said $1"
    fi
    [ "$word" = "$1" ] || fail "it said $word, not $1"
}

check() {
    echo check >&3
    says right
}

finish() {
    local status=0
    exec 3>&-
    wait "$pid" || status=$?
    pid=
    [ "$status" -eq 0 ] || fail "it ended with status $status"
}

mib() { echo $(($(cat "$group/$1") >> 20)); }

# The program would be killed if its budget stayed at 256 MiB.
below_limit() {
    group_make 96
    start
    check
    [ "$(mib "$usage")" -le 96 ] || fail "$(mib "$usage") MiB are in use"
    grep -q 'does not fit beside the rest under the memory limit of 96 MiB' err || fail "it does not say why"
    [ "$(grep -c 'does not fit' err)" -eq 1 ] || fail "it says so more than once"
    finish
}

# The limit comes down to half while the program runs. (A v1 limit cannot be set below what is in use.)
lowered() {
    local next
    group_make 160
    start
    for _ in $(seq 300); do
        next=$(($(mib "$usage") + 2))
        [ "$next" -gt 80 ] || next=80
        echo $((next << 20)) 2>/dev/null >"$group/$limit" || true
        [ "$(mib "$limit")" -gt 80 ] || break
        sleep 0.1
    done
    [ "$(mib "$limit")" -le 80 ] || fail "$(mib "$usage") MiB are still in use, the limit is $(mib "$limit") MiB"
    # It keeps a margin, for what it needs itself, as soon as it has looked: once a second.
    for _ in $(seq 100); do
        [ "$(mib "$usage")" -gt 75 ] || break
        sleep 0.1
    done
    [ "$(mib "$usage")" -le 75 ] || fail "$(mib "$usage") MiB are in use, the limit is 80 MiB: there is no margin"
    check
    [ "$(mib "$usage")" -le 80 ] || fail "$(mib "$usage") MiB are in use"
    finish
}

"$case"
