#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# differ.sh LIBRARY PROGRAM FIRST LAST STEPS: for each seed, PROGRAM (differ.c) says the same under the library, with
# next to no DDR, as without. What a difference would look like is tried first, or equal would mean nothing.
set -euo pipefail
library=$1 program=$2 first=$3 last=$4 steps=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

natively() {
    TRAP_PRESSURE=1 timeout -k 1 60 "$program" "$1" "$steps" </dev/null
}

managed() {
    env LD_PRELOAD="$library" DSM_PRELOAD=1 DSM_DDR=4M DSM_CXL=256M TRAP_PRESSURE=10 TRAP_EVICTS=1 \
        timeout -k 1 100 "$program" "$1" "$steps" </dev/null
}

natively "$first" >"$scratch/native"
DIFFER_PLANT=1 natively "$first" >"$scratch/planted"
if cmp -s "$scratch/native" "$scratch/planted"; then
    echo "a planted difference is not seen"
    exit 1
fi
for ((seed = first; seed <= last; seed++)); do
    for way in natively managed; do
        if ! "$way" "$seed" >"$scratch/$way" 2>"$scratch/errors"; then
            echo "seed $seed, $way: $(tail -3 "$scratch/errors")"
            failed=1
        fi
    done
    if ! cmp -s "$scratch/natively" "$scratch/managed"; then
        echo "seed $seed, $steps steps: natively < > managed"
        diff "$scratch/natively" "$scratch/managed" | head -8 || true
        failed=1
    fi
done
[ "$failed" -eq 0 ] && echo "differ: ok, seeds $first to $last" || exit 1
