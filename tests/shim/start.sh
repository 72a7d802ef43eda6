#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# start.sh LIBRARY OTHER PROGRAM ARGUMENT: the preload library at the start of programs: alone, and before and behind
# another allocator and a library whose open() allocates. `true` has a second.
set -euo pipefail
library=$1 other=$2
program=("$3" "$4")
jemalloc=$(ldconfig -p | awk '/libjemalloc\.so\.2/ && !found {print $NF; found = 1}')
failed=0
limit=20
ran=0

# run NAME PRELOAD COMMAND...
run() {
    local name=$1 preload=$2 status=0 output
    shift 2
    output=$(LD_PRELOAD=$preload DSM_PRELOAD=1 timeout -k 1 "$limit" "$@" </dev/null 2>&1) || status=$?
    ran=$((ran + 1))
    if [ "$status" -ne 0 ]; then
        printf '%s: %s: status %s: %s\n' "$name" "$*" "$status" "$output"
        failed=1
    fi
}

orders=("$library" "$library:$other" "$other:$library")
if [ -n "$jemalloc" ]; then
    orders+=("$library:$jemalloc" "$jemalloc:$library" "$jemalloc:$library:$other")
else
    echo "libjemalloc.so.2 is not there: not tried with it"
fi
text=$(mktemp)
trap 'rm -f "$text"' EXIT
printf 'b\na\nc\n' >"$text"
for order in "${orders[@]}"; do
    limit=1 run "$order" "$order" true
    run "$order" "$order" grep -q '^\(a\|b*\)$' "$text"
    run "$order" "$order" sort -o "$text" "$text"
    run "$order" "$order" bash -c 'x=$(echo a | cat); [ "$x" = a ]'
    run "$order" "$order" env LC_ALL=C.UTF-8 awk '{ n[$1]++ } END { exit length(n) != 3 }' "$text"
    run "$order" "$order" "${program[@]}"
    for tool in redis-server perl python3; do
        if command -v "$tool" >/dev/null; then
            run "$order" "$order" "$tool" --version
        fi
    done
done
[ "$failed" -eq 0 ] && echo "start: ok, $ran runs" || exit 1
