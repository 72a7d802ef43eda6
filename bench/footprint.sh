#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# footprint.sh CGROUP BUDGET_MIB COMMAND...: starts COMMAND in the empty cgroup, says "ready" when it does, and answers
# each line with the most memory in MiB that it had beyond the budget, everything counted: the program's own, and that
# of dsmrun.
set -euo pipefail

group=$1 budget_mib=$2
shift 2
pid=

clean_up() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    [ -z "$pid" ] || wait "$pid" || true
}
trap clean_up EXIT
trap 'exit 143' TERM

peak=$group/memory.peak
[ -e "$peak" ] || peak=$group/memory.max_usage_in_bytes
echo 0 2>/dev/null >"$peak" || true
coproc "$(dirname "$0")/in_group.sh" "$group" "$@"
pid=$COPROC_PID
read -r word <&"${COPROC[0]}"
echo "$word"
while read -r seconds; do
    echo "$seconds" >&"${COPROC[1]}"
    read -r _ <&"${COPROC[0]}"
    awk -v peak="$(cat "$peak")" -v budget="$budget_mib" 'BEGIN { printf "%.2f\n", peak / 1048576 - budget }'
done
