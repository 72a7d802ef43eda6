#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the Promela models: each must hold, and each of its BUG variants must fail. 77: spin or gcc is missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null && command -v gcc >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# errors MODEL BUG: prints the number of errors that the checker finds.
errors() {
    spin -a -DBUG="$2" "$here/$1" >spin.log 2>&1 || { cat spin.log >&2; return 1; }
    gcc -O1 -w -DSAFETY -o pan pan.c
    ./pan -m100000 >pan.log 2>&1 || true
    grep -q 'max search depth too small' pan.log && { echo "$1: search depth is too small" >&2; return 1; }
    sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log
}

status=0
# check MODEL BUGS
check() {
    found=$(errors "$1" 0)
    states=$(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' pan.log)
    if [ "$found" = 0 ]; then
        echo "$1: holds, $states states"
    else
        echo "$1: fails, $found errors"
        status=1
    fi
    for bug in $(seq 1 "$2"); do
        found=$(errors "$1" "$bug")
        if [ -n "$found" ] && [ "$found" != 0 ]; then
            echo "$1: bug $bug is found"
        else
            echo "$1: bug $bug is not found"
            status=1
        fi
    done
}

check handoff.pml 5
exit $status
