#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# program_long.sh TIERMESH_REPLAY: a trace of 10^9 records is read as it comes, with a hundredth of the memory that its
# records would need.
set -euo pipefail
replay=$1
records=1000000000
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! command -v zstd >/dev/null; then
    echo "skipped: there is no zstd"
    exit 77
fi
# One page, over and over: its number once, and nothing but zeroes behind that. 10^9 is 0x3b9aca00.
{
    printf 'PT1\0\x00\xca\x9a\x3b\0\0\0\0\x64\0\0\0\0\0\0\0\1\0\0\0\x40\0\0\0\2'
    head -c $((records - 1 + records + (records + 7) / 8 + records)) /dev/zero
} | zstd -q -1 -o "$scratch/long.zst"

"$replay" "$scratch/long.zst" --frames 1 --policy lru --json >"$scratch/out" &
pid=$!
peak=0
while now=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do
    peak=$now
    sleep 0.2
done
wait "$pid"
if [ "$peak" -eq 0 ] || [ "$peak" -gt 40000 ]; then
    echo "program_long: it took $peak KiB"
    exit 1
fi
if ! grep -q '"touches": 1000000000, "misses": 1, .*"to_belady": null' "$scratch/out"; then
    echo "program_long: $(cat "$scratch/out")"
    exit 1
fi
echo "program_long: ok"
