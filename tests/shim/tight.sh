#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tight.sh PRELOAD: a program under limits on its addresses and data, from some that it does not even load with: it ends
# by itself, with or without an error, and prints what it should where it ends well. setlocale() allocates with a lock
# of libc's: what the shard says about its failed start must not need that.
set -u
export DSM_PRELOAD=1 DSM_DDR=4M LC_ALL=C.UTF-8
well=0
for limit in -v -d; do
    for ((kib = 6000; kib <= 60000; kib += 500)); do
        output=$(ulimit "$limit" "$kib"
            LD_PRELOAD=$1 exec timeout -s KILL 20 /usr/bin/printf '%s' "limit $kib" 2>/dev/null)
        status=$?
        if [ "$status" = 0 ] && [ "$output" = "limit $kib" ]; then
            well=$((well + 1))
        elif [ "$status" -gt 128 ] || [ "$status" = 0 ]; then
            echo "ulimit $limit $kib: status $status, printed '$output'"
            exit 1
        fi
    done
done
[ "$well" -gt 50 ] || { echo "only $well ended well"; exit 1; }
