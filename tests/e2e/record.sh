#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Traces of real runs: `record.sh DIRECTORY CASE`; DIRECTORY holds what was built. Ends with 77 where no memory can be
# managed.
set -euo pipefail

build=$1
case=$2
dsmrun=$build/dsmrun
replay=$build/bench/tiermesh-replay
touches=$build/tests/e2e_plain_touches
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset LD_PRELOAD DSM_PRELOAD DSM_BROKER DSM_BROKER_KEY

fail() {
    echo "FAILED $case: $*" >&2
    exit 1
}

# recorded STATUS ARGUMENTS...: dsmrun under a budget of 16 MiB, with its output in ./out, ./err and ./summary.
recorded() {
    local wanted=$1 status=0
    shift
    rm -f summary
    timeout 50 "$dsmrun" --ddr 16M --zmem 64M --summary summary --record trace "$@" >out 2>err </dev/null || status=$?
    if grep -q 'userfaultfd' err; then
        echo "skipped: $(cat err)"
        exit 77
    fi
    [ "$status" = "$wanted" ] || fail "$* ended with $status, not $wanted: $(cat err)"
}

# Faults of a process in the summary, which lists them as they ended; without a pid, of the only one.
faults() {
    awk -v pid="${1:-}" '/\(process/ { on = pid == "" ? !seen : $0 ~ "process " pid "\\)"; seen = 1 }
        on && $1 == "faults" { sub(/^ *faults +(new pages|other nodes|[a-z]+) +/, ""); sum += $1 }
        END { print sum + 0 }' summary
}

# field NAME FILE: of the replay with half of the frames.
field() {
    "$replay" "$2" --frames 50% --policy lru --json | sed -E "s/.*\"$1\": ([0-9.]+).*/\1/"
}

expect_word() {
    grep -q -- "$2" "$1" || fail "\"$2\" is not in $1: $(cat "$1")"
}

# What the recorder says it saw is what the pager counted.
case_counts() {
    local count misses
    for policy in fifo arms; do
        recorded 0 --set policy=$policy -- "$touches" 48 2 exit
        [ "$(ls)" = "$(printf 'err\nout\nsummary\ntrace')" ] || fail "there are $(ls)"
        count=$(field touches trace)
        [ "$count" = "$(faults)" ] || fail "$count touches in the trace, but faults: $(cat summary)"
        [ "$count" -gt 20000 ] || fail "only $count touches"
        misses=$(field misses trace)
        [ "$misses" -gt 8000 ] && [ "$misses" -le "$count" ] || fail "$misses misses of $count touches"
    done
}

case_forks() {
    local child parent
    recorded 0 -- "$touches" 48 1 fork
    child=$(ls trace.*)
    parent=$(sed -n 's/.*(process \([0-9]*\)).*/\1/p' summary | grep -vx "${child#trace.}")
    [ "$(field touches trace)" = "$(faults "$parent")" ] || fail "the parent $parent: $(cat summary)"
    # It ends by _exit, so that its last seven touches may be missing.
    local count seen
    count=$(field touches "$child") seen=$(faults "${child#trace.}")
    [ "$count" -le "$seen" ] && [ "$count" -ge $((seen - 7)) ] || fail "$count touches of the child, and $(cat summary)"
    [ "$count" -gt 8000 ] || fail "only $count touches of the child"
}

# A job of several programs, and one that changes its folder.
case_programs() {
    mkdir elsewhere
    recorded 0 -- sh -c "cd elsewhere; '$touches' 48 1 exit; '$touches' 32 1 exit"
    [ "$(field touches trace)" -gt "$(field touches trace.*)" ] || fail "the first is not the first: $(cat summary)"
    [ -z "$(ls elsewhere)" ] || fail "written elsewhere: $(ls elsewhere)"
}

# What a process that is killed leaves is a trace in parts.
case_killed() {
    local count
    recorded 137 -- "$touches" 48 2 kill
    count=$(field touches trace)
    [ "$count" -gt 20000 ] || fail "only $count touches"
    [ "$(grep -c PT1 trace)" -gt 1 ] || fail "it is one part"
}

# The limit on the size of files, of 512 or 1024 bytes by the shell, stands for a disk that is full.
case_full() {
    recorded 0 -- sh -c "trap '' XFSZ; ulimit -f 100; exec '$touches' 48 4 exit"
    expect_word err 'warning: record to .*/trace stops after [0-9]* touches: File too large; the program goes on'
    [ "$(grep -c 'record to' err)" = 1 ] || fail "said more than once: $(cat err)"
    [ "$(wc -c <trace)" -le 102400 ] || fail "$(wc -c <trace) bytes"
    [ "$(field touches trace)" -gt 1000 ] || fail "$(field touches trace) touches"
}

# Programs that are nodes: a file for each.
case_nodes() {
    local bench=$build/bench/bench_remote_fault
    if [ ! -x "$bench" ]; then
        echo "skipped: there is no bench_remote_fault"
        exit 77
    fi
    timeout 50 "$dsmrun" -n 2 --record trace -- "$bench" --quick --transport shm >out 2>err || fail "$(cat err)"
    [ ! -e trace ] || fail "two nodes have one file"
    [ "$(field touches trace.0)" -gt 1000 ] || fail "$(field touches trace.0) touches of node 0"
    [ "$(field touches trace.1)" -gt 10 ] || fail "$(field touches trace.1) touches of node 1"
    ! DSM_RECORD=$scratch/none/trace "$build/bench/bench_local_fault" --quick 2>err || fail "it started"
    expect_word err 'none/trace: No such file.*give a file that can be written'
}

# refused FILE WORDS: before anything is started.
refused() {
    local status=0
    "$dsmrun" --record "$1" -- touch started 2>err || status=$?
    [ "$status" = 64 ] || fail "--record $1: status $status"
    [ ! -e started ] || fail "--record $1: the program ran"
    expect_word err "$2"
}

case_refusals() {
    mkdir folder
    refused none/trace 'record none/trace: the folder none/: No such file'
    refused folder 'Is a directory'
    refused folder/ 'no name of a file'
    refused '' 'a file is needed'
    refused "$(printf 'x%.0s' {1..300})" 'File name too long'
    mkfifo pipe
    refused pipe 'record .*pipe'
    if [ "$(id -u)" != 0 ]; then
        chmod 500 folder
        refused folder/trace 'Permission denied'
    fi
    echo old >trace
    "$dsmrun" --record trace -- true 2>err || fail "status $?: $(cat err)"
    expect_word err 'nothing was recorded'
    [ ! -e trace ] || fail "the old trace is still there"
}

"case_$case"
