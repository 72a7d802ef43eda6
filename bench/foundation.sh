#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# foundation.sh BUILD_DIRECTORY OUTPUT.jsonl [--quick]: the speed and memory that the foundation must reach. Prints a
# table and one line "met NAME RATIO BAR" or "missed NAME RATIO BAR" for each bar, and writes the figures as JSON lines.
# A bar that this machine cannot judge is "skipped" with the reason. The exit status says whether everything ran, not
# whether every bar was met.
set -euo pipefail

build=$(realpath "$1") output=$(realpath -m "$2")
shift 2
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
programs=$build/bench
store=$(dirname "$output")/store
mkdir -p "$store"
rm -f "$output"
verdicts=$(mktemp)
log=$(mktemp)
pid=
failed=0

machine() {
    local cpu revision
    cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
    revision=$(git -C "$bench" describe --always --dirty 2>/dev/null || echo unknown)
    printf '{"machine":"%s","processors":%d,"memory_mib":%d,"kernel":"%s","date":"%s","revision":"%s"}\n' \
        "${cpu:-$(uname -m)}" "$(nproc)" $(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024)) \
        "$(uname -r)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$revision"
}

# run NAMES COMMAND...: prints the rows, keeps the verdicts for the end; a program that fails leaves its bars unjudged.
run() {
    local names=$1 name status=0
    shift
    # In the background, so that a signal reaches this script, and through it the program, at once.
    "$@" --json "$output" "${options[@]}" >"$log.out" 2>"$log.err" </dev/null &
    pid=$!
    wait "$pid" || status=$?
    pid=
    grep -vE '^(met|missed|skipped|failed) ' "$log.out" || true
    grep -E '^(met|missed|skipped|failed) ' "$log.out" >>"$verdicts" || true
    if [ "$status" -ne 0 ]; then
        [ "$status" -eq 77 ] || failed=1
        tail -n 5 "$log.err" | sed 's/^/    /'
        for name in $names; do
            grep -q "^[a-z]* $name[ :]" "$verdicts" ||
                echo "failed $name: its program ended with status $status" >>"$verdicts"
        done
    fi
}

# pair NAMES TRANSPORT PROGRAM [ARGUMENTS]: on two nodes.
pair() {
    local names=$1 transport=$2 program=$3
    shift 3
    run "$names" "$build/dsmrun" -n 2 --timeout 300 --transport "$transport" "$programs/$program" \
        --transport "$transport" "$@"
}

clean_up() {
    trap '' INT TERM
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" || true
    fi
    rm -f "$verdicts" "$log" "$log.out" "$log.err"
    rmdir "$store" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

options=("$@")
machine | tee "$output"
printf '%-30s %10s %10s %-8s %7s  %7s %7s  %s\n' figure product reference unit ratio lowest highest bar
run "local-fault-private local-fault-shared" "$programs/bench_local_fault"
run "resident-load-private resident-load-shared resident-store-private resident-store-shared resident-random-private \
resident-random-shared" "$programs/bench_resident"
pair remote-fault-shm shm bench_remote_fault --spin 50
pair "" shm bench_remote_fault
pair remote-fault-tcp tcp bench_remote_fault
for transport in shm tcp; do
    pair "lock-handover-$transport lock-again-$transport" "$transport" bench_lock_handover
    pair "bulk-read-$transport" "$transport" bench_bulk_read
done
limit_mib=256
[ "${1:-}" != --quick ] || limit_mib=16 # the program reads as much less
run "sequential-nvme metadata metadata-untouched" "$bench/swap.sh" "$store" 1280 "$limit_mib" \
    "$programs/bench_sequential" --directory "$store"
echo
cat "$verdicts"
[ "$failed" -eq 0 ]
