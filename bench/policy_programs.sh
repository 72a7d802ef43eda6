#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# policy_programs.sh BUILD_DIRECTORY OUTPUT.jsonl [ROW...]: unchanged programs under dsmrun with each policy, by turns,
# at a half and a quarter of their peak, with an nvme tier. Adds JSON lines to OUTPUT and prints for each
#   hard   faults that waited for a lower tier    soft   faults on pages in memory: in limbo, or mapped for reading only
#   new    faults on pages that had no bytes      and the seconds it took, or for redis the requests a second.
# Of several rounds, the medians. Rows, also in $ROWS: sort sqlite numpy dict redis. $WAYS: what is compared (below).
# The bar is for the policy against the order of the faults alone ("met", "missed").
set -euo pipefail

build=$(realpath "$1") output=$(realpath -m "$2")
shift 2
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
programs=$build/bench rivals=$build/bench/bench_rivals
store=$(dirname "$output")/policy-store
scratch=$store/files
read -r -a rows <<<"$* ${ROWS:-}"
[ "${#rows[@]}" -gt 0 ] || rows=(sort sqlite numpy dict redis)
rounds=${ROUNDS:-1} seconds=${SECONDS_EACH:-5}
sort_lines=300000 sqlite_records=250000 numpy_count=$((1 << 22)) dict_keys=150000 redis_keys=100000
if [ "${QUICK:-0}" = 1 ]; then
    sort_lines=100000 sqlite_records=40000 numpy_count=$((1 << 20)) dict_keys=60000 redis_keys=20000 seconds=1
fi
source "$bench/programs.sh"

# FIFO: without moves there is no limbo for private memory, and no touch of a page in memory is seen.
declare -A settings=(
    [fifo]="--set policy=fifo --set uffd.move=off"
    [segmented]="--set policy=fifo"
    [arms]="--set policy=arms"
)
read -r -a ways <<<"${WAYS:-fifo segmented arms}"

clean_up() {
    trap '' INT TERM HUP
    pids_end
    rm -rf "$store"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
mkdir -p "$scratch"
touch "$output"

# Sets product: what stands before a command to run it that WAY with a budget of so many MiB.
product_of() {
    local set
    read -r -a set <<<"${settings[$1]}"
    product=("$build/dsmrun" --ddr "${2}M" --nvme "3G:$store" --summary "$scratch/summary" "${set[@]}" ${OPTIONS:-} --)
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# figures NAME UNIT: from $scratch/rounds, lines of "WAY HARD SOFT NEW FIGURE".
figures() {
    local way hard soft new figure base=
    for way in "${ways[@]}"; do
        for column in 2 3 4 5; do
            awk -v way="$way" -v column=$column '$1 == way { print $column }' "$scratch/rounds" | median
        done >"$scratch/medians"
        { read -r hard && read -r soft && read -r new && read -r figure; } <"$scratch/medians"
        [ -n "$base" ] || base=$hard
        printf '%-12s %-10s %9.0f %6.2f %9.0f %6.2f %9.0f %10.1f %s\n' "$1" "$way" "$hard" \
            "$(awk "BEGIN { print ($base > 0 ? $hard / $base : 0) }")" "$soft" \
            "$(awk "BEGIN { print ($hard > 0 ? $soft / $hard : 0) }")" "$new" "$figure" "$2"
        printf '{"name":"%s","way":"%s","hard":%.1f,"soft":%.1f,"new":%.1f,"%s":%s}\n' "$1" "$way" "$hard" "$soft" \
            "$new" "$2" "$figure" >>"$output"
    done
}

# by_turns NAME UNIT TOP ONCE ARGUMENT...: at half and at a quarter of TOP MiB, `ONCE WAY ARGUMENT...` each way and
# round; it runs something behind `product` and adds a line to $scratch/rounds.
by_turns() {
    local name=$1 unit=$2 top=$3 once=$4 part round way
    shift 4
    for part in 2 4; do
        : >"$scratch/rounds"
        for round in $(seq "$rounds"); do
            for way in "${ways[@]}"; do
                product_of "$way" $((top / part))
                rm -f "$scratch/summary"
                "$once" "$way" "$@"
            done
        done
        figures "$name-$((100 / part))" "$unit"
    done
}

# program_once WAY NAME COMMAND...: from start to end; the result must be that of the first.
program_once() {
    local way=$1 name=$2 start=$EPOCHREALTIME
    shift 2
    if ! run "${product[@]}" "$@" >"$scratch/result" 2>"$scratch/err" </dev/null; then
        tail -n 5 "$scratch/err" | sed 's/^/    /'
        echo "failed $name: it ended with an error under $way"
        exit 1
    fi
    echo "$way $(faults "$scratch/summary") $(awk "BEGIN { print $EPOCHREALTIME - $start }")" >>"$scratch/rounds"
    [ -n "$wanted" ] || wanted=$(md5sum <"$scratch/result")
    if [ "$(md5sum <"$scratch/result")" != "$wanted" ]; then
        echo "failed $name: another result under $way"
        exit 1
    fi
}

# program NAME COMMAND...
program() {
    local name=$1 top wanted=
    shift
    top=$(peak "$@")
    by_turns "$name" s "$top" program_once "$name" "$@"
}

row_sort() { sort_command && program sort "${command[@]}"; }
row_sqlite() { sqlite_command && program sqlite "${command[@]}"; }
row_numpy() { numpy_command && program numpy "${command[@]}"; }
row_dict() { dict_command && program dict "${command[@]}"; }

# The load is for a time, so that faults are for 10,000 requests.
redis_once() {
    local way=$1 rate
    server product "${product[@]}"
    { sleep 0.1 && echo "$seconds"; } | run "$programs/bench_redis_load" "$scratch/product" "$redis_keys" 1024 16 \
        >"$scratch/load"
    rate=$(awk 'NR == 2 { print $1 }' "$scratch/load")
    servers_end product
    faults "$scratch/summary" | awk -v way="$way" -v rate="$rate" -v seconds="$seconds" '{
        all = rate * seconds / 10000
        print way, $1 / all, $2 / all, $3 / all, rate }' >>"$scratch/rounds"
}

row_redis() {
    redis_peak
    by_turns redis requests/s "$top" redis_once
}

start_line=$(($(wc -l <"$output" ) + 1))
printf '%-12s %-10s %9s %6s %9s %6s %9s %10s\n' program policy hard ratio soft a-hard new figure
for row in "${rows[@]}"; do
    "row_$row"
done

# The last way against the first, over programs and sizes.
tail -n "+$start_line" "$output" | sed -E 's/[{}"]//g' | awk -F'[:,]' -v first="${ways[0]}" -v last="${ways[-1]}" '
    $4 == first { base[$2] = $6; figure[$2] = $12 }
    $4 == last && base[$2] > 0 && $6 > 0 {
        ratio = $11 == "s" ? $12 / figure[$2] : figure[$2] / $12
        log_sum += log($6 / base[$2]); time_sum += log(ratio); count++
    }
    END {
        if (count == 0) exit
        hard = exp(log_sum / count)
        printf "%s to %s, geometric mean of %d: hard faults %.2f, time %.2f\n", last, first, count, hard,
               exp(time_sum / count)
        printf "%s policy-hard-faults %.2f <=0.8\n", hard <= 0.8 ? "met" : "missed", hard
    }'
