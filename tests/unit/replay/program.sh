#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# program.sh TIERMESH_REPLAY: traces of a few records whose misses are known, and what is no trace.
set -euo pipefail
replay=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

fail() { echo "program: $*"; failed=1; }

# trace RECORDS DELTAS: a trace of fewer than 16 records; the deltas are zigzag numbers below 128, as escapes of printf.
trace() {
    printf 'PT1\0'
    printf "\\x$(printf %02x "$1")\\0\\0\\0\\0\\0\\0\\0"
    printf '\x64\0\0\0\0\0\0\0\1\0\0\0\x40\0\0\0'
    printf "$2"
    head -c $((2 * $1 + ($1 + 7) / 8)) /dev/zero
}

# misses FRAMES POLICY EXPECTED
misses() {
    local told
    told=$("$replay" "$scratch/classic" --frames "$1" --policy "$2" --json | sed -E 's/.*"misses": ([0-9]+).*/\1/')
    [ "$told" = "$3" ] || fail "$2 with $1 frames: $told misses, not $3"
}

# refused STATUS PATTERN ARGUMENT...
refused() {
    local status=0 wanted=$1 pattern=$2
    shift 2
    "$replay" "$@" >"$scratch/out" 2>"$scratch/error" || status=$?
    [ "$status" = "$wanted" ] || fail "$*: status $status, not $wanted"
    grep -q "$pattern" "$scratch/error" || fail "$*: says $(cat "$scratch/error")"
}

# 1 2 3 4 1 2 5 1 2 3 4 5, on which FIFO gets worse with more frames (Belady, Nelson, Shedler: CACM 1969).
trace 12 '\2\2\2\2\5\2\6\7\2\2\2\2' >"$scratch/classic"
misses 3 fifo 9
misses 4 fifo 10
misses 3 lru 10
misses 4 lru 8
misses 3 clock 10
misses 3 belady 7
misses 4 belady 6
misses 1 lru 12
misses 5 lru 5
for policy in fifo lru clock lru-2 arc lirs s3-fifo belady segmented-fifo arms; do
    misses 100 $policy 5
done

trace 9 '\2\0\0\0\0\0\0\0\0' >"$scratch/classic"
misses 1 lru 1
misses 16 arms 1
misses 100% lru 1

# Compressed, as traces are kept.
if command -v zstd >/dev/null; then
    zstd -q "$scratch/classic" -o "$scratch/classic.zst"
    "$replay" "$scratch/classic.zst" --frames 1 --policy lru --json | grep -q '"misses": 1,' || fail "zstd"
    head -c 20 "$scratch/classic.zst" >"$scratch/cut.zst"
    refused 65 'cut short\|damaged\|no PT1' "$scratch/cut.zst" --frames 1 --policy lru
fi

refused 64 'at least 1' "$scratch/classic" --frames 0
refused 64 'needs --frames' "$scratch/classic"
refused 64 'not: x%' "$scratch/classic" --frames x%
refused 64 'no policy "best"' "$scratch/classic" --frames 4 --policy best
refused 64 'names no trace' --frames 4
refused 64 'limbo takes' "$scratch/classic" --frames 4 --limbo 120%
refused 65 'needs 16 frames' "$scratch/classic" --frames 4 --policy arms
refused 66 'cannot open' "$scratch/none" --frames 4
refused 65 'no PT1 trace' "$0" --frames 4
head -c 41 "$scratch/classic" >"$scratch/cut"
refused 65 'cut short' "$scratch/cut" --frames 4 --policy lru
cat "$scratch/classic" "$scratch/classic" >"$scratch/twice" # a recording that was cut off has such parts
"$replay" "$scratch/twice" --frames 1 --policy lru,belady --json >"$scratch/out"
[ "$(grep -c '"touches": 18,.*"misses": 1,' "$scratch/out")" = 2 ] || fail "two parts: $(cat "$scratch/out")"
{ cat "$scratch/classic" && echo; } >"$scratch/longer"
refused 65 'goes on behind' "$scratch/longer" --frames 4 --policy lru
trace 0 '' >"$scratch/empty"
refused 65 'no records' "$scratch/empty" --frames 4

[ "$failed" = 0 ] && echo "program: ok"
exit "$failed"
