#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo says FAILED, and its exit code says so too, when it cannot read what it needs.
set -euo pipefail
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fails() {
    local what=$1 output
    shift
    if output=$(DSM_SIZE=1 timeout 20 "$program" "$@" 2>&1); then
        printf '%s: no failure:\n%s\n' "$what" "$output"
        exit 1
    fi
    if ! tail -n 1 <<<"$output" | grep -q '^demo: FAILED'; then
        printf '%s: the last line is not the verdict:\n%s\n' "$what" "$output"
        exit 1
    fi
}

fails "a file that is not there" "$scratch/none"
fails "a directory" "$scratch"
: >"$scratch/empty"
fails "an empty list" "$scratch/empty"
head -c 100000 /dev/zero >"$scratch/zeroes"
fails "no stanza" "$scratch/zeroes"
printf 'not compressed' >"$scratch/list.gz"
fails "a list that cannot be unpacked" "$scratch/list.gz"
