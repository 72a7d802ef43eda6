#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# preload.sh BUILD_DIRECTORY OUTPUT.jsonl [--quick] [ROW...]: unchanged programs under the preload library, each beside
# the same program under the kernel's swap, by turns in one run. Prints a table and one line "met NAME RATIO BAR" or
# "missed NAME RATIO BAR" for each bar, and adds the figures to OUTPUT as JSON lines; without a ROW it begins anew.
# Rows, also in $ROWS (and rounds in $ROUNDS): touch random zmem redis sqlite sort numpy dict fits memory. $BUDGETS of
# programs: "zmem nvme", with compressed memory inside the budget and without. Under the latter there is a row
# NAME-faults: faults that waited for a disk, of a program's run or of 10,000 requests, those on files included.
# $CLUSTERS: values of page-cluster, the pages that the rival reads at a time as a power of two, each with its own rows
# (the name ends in -pcN where that is not the machine's).
#
# The rival is the same binary in a memory cgroup of the size of the product's budget, with a swap file on the disk of
# the nvme tier (swap.sh; needs root), or with zram. What cannot be had here is "skipped" with the reason. The exit
# status says whether everything ran, not whether every bar was met.
set -euo pipefail

if [ -z "${BENCH_CGROUP:-}${BENCH_NO_SWAP:-}" ]; then
    mkdir -p "$(dirname "$2")/store"
    exec "$(dirname "$0")/swap.sh" "$(dirname "$2")/store" 3072 256 "$0" "$@"
fi

build=$(realpath "$1") output=$(realpath -m "$2")
shift 2
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
programs=$build/bench
store=$(dirname "$output")/store
scratch=$store/preload
rivals=$programs/bench_rivals
product_group=${BENCH_CGROUP:+$BENCH_CGROUP-product}
zram=
failed=0

quick=0
if [ "${1:-}" = --quick ]; then
    quick=1
    shift
fi
read -r -a rows <<<"$* ${ROWS:-}"
read -r -a budgets <<<"${BUDGETS:-zmem nvme}"
cluster_usual=$(cat /proc/sys/vm/page-cluster)
read -r -a clusters <<<"${CLUSTERS:-$cluster_usual}"

# Sizes: MiB of the limit, of a set that is twice that; rounds and seconds of each.
limit=256 rounds=${ROUNDS:-5} seconds=3
[ "$quick" = 0 ] || limit=16 rounds=1 seconds=0.2
set_mib=$((limit * 2)) zmem_share=70%
sort_lines=$((quick ? 100000 : 2500000)) sqlite_records=$((quick ? 20000 : 700000))
dict_keys=$((quick ? 30000 : 400000))
numpy_count=$((quick ? 1 << 18 : 1 << 24)) redis_keys=$((quick ? 10000 : 300000))
source "$bench/programs.sh"

# ---- what is needed and left behind ----------------------------------------------------------------------------------

zram_remove() {
    [ -n "$zram" ] || return 0
    ! grep -q "^/dev/zram$zram " /proc/swaps || swapoff "/dev/zram$zram" || return 1
    echo 1 >"/sys/block/zram$zram/reset"
    # Device 0 is made with the kernel; the others are ours.
    [ "$zram" = 0 ] || echo "$zram" >/sys/class/zram-control/hot_remove
    zram=
}

clean_up() {
    trap '' INT TERM HUP
    pids_end
    zram_remove || echo "preload.sh: /dev/zram$zram is still switched on" >&2
    for _ in $(seq 50); do
        [ -n "$product_group" ] && [ -d "$product_group" ] && ! rmdir "$product_group" 2>/dev/null || break
        sleep 0.1
    done
    rm -rf "$scratch"
    rmdir "$store" 2>/dev/null || true # swap.sh has a file there still
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mkdir -p "$scratch"
[ "${#rows[@]}" -gt 0 ] || rm -f "$output"
[ -z "$product_group" ] || mkdir "$product_group"

skip() {
    printf 'skipped %s: %s\n' "$1" "$2"
    printf '{"name":"%s","verdict":"skipped","why":"%s"}\n' "$1" "$2" >>"$output"
}

machine() {
    local cpu revision
    cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
    revision=$(git -C "$bench" describe --always --dirty 2>/dev/null || echo unknown)
    printf '{"machine":"%s","processors":%d,"memory_mib":%d,"kernel":"%s","date":"%s","revision":"%s",' \
        "${cpu:-$(uname -m)}" "$(nproc)" $(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024)) \
        "$(uname -r)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$revision"
    printf '"page_cluster":%d,"swappiness":%d}\n' "$(cat /proc/sys/vm/page-cluster)" "$(cat /proc/sys/vm/swappiness)"
}

# ---- the two sides ---------------------------------------------------------------------------------------------------

# limit_set MIB: of the rival's cgroup; "none" for no limit.
limit_set() {
    local bytes=$(($1 << 20)) file=$BENCH_CGROUP/memory.max
    if [ ! -e "$file" ]; then
        file=$BENCH_CGROUP/memory.limit_in_bytes
        echo 0 2>/dev/null >"$BENCH_CGROUP/memory.force_empty" || true
        [ "$bytes" -gt 0 ] || bytes=-1
    elif [ "$bytes" -eq 0 ]; then
        bytes=max
    fi
    echo "$bytes" >"$file"
}

# Sets product: what stands before a command to run it with that budget in MiB, and options of dsmrun behind it.
product_of() {
    local budget=$1
    shift
    product=("$bench/in_group.sh" "$product_group" "$build/dsmrun" --ddr "${budget}M" --nvme "3G:$store" "$@" --)
}

# Sets rival: the same for the kernel's side with a limit in MiB, 0 for none.
rival_of() {
    limit_set "$1"
    rival=("$bench/in_group.sh" "$BENCH_CGROUP")
}

# cluster_set N: pages that the rival reads at a time; swap.sh puts it back. Sets suffix, for the names of rows.
cluster_set() {
    suffix=
    [ "$1" = "$(cat /proc/sys/vm/page-cluster)" ] || echo "$1" >/proc/sys/vm/page-cluster
    [ "$1" = "$cluster_usual" ] || suffix=-pc$1
}

# major CGROUP: faults of its processes that waited for the kernel's reads.
major() { awk '$1 == "pgmajfault" { print $2 }' "$1/memory.stat"; }

faults_begin() {
    rm -f "$scratch/summary"
    rival_major=$(major "$BENCH_CGROUP") product_major=$(major "$product_group")
}

# faults_end NAME SHARE_OF_PRODUCT SHARE_OF_RIVAL: the row of what was counted since, in such shares.
faults_end() {
    local hard soft new
    [ -s "$scratch/summary" ] || return 0
    read -r hard soft new <<<"$(faults "$scratch/summary")"
    awk -v name="$1" -v product="$2" -v rival="$3" -v hard="$hard" -v soft="$soft" -v new="$new" \
        -v ours=$(($(major "$product_group") - product_major)) \
        -v theirs=$(($(major "$BENCH_CGROUP") - rival_major)) -v json="$output" 'BEGIN {
            all = (hard + ours) / product; other = theirs / rival
            ratio = other > 0 ? all / other : 0
            verdict = all < other ? "met" : "missed"
            printf "%-30s %10.2f %10.2f %-8s %7.3f  %7s %7s  %s\n", name, all, other, "faults", ratio, "", "", "<1"
            printf "%s %s %.3f <1\n", verdict, name, ratio
            printf "    %.1f of ours by the kernel; soft %.1f, on new pages %.1f\n", ours / product, soft / product,
                   new / product
            printf "{\"name\":\"%s\",\"unit\":\"faults\",\"product\":%.4f,\"reference\":%.4f,\"ratio\":%.4f,", name,
                   all, other, ratio >>json
            printf "\"soft\":%.4f,\"new\":%.4f,\"bar\":\"<1\",\"verdict\":\"%s\"}\n", soft / product, new / product,
                   verdict >>json
        }'
}

# measure --figure NAME,UNIT,BAR OPTION... PRODUCT... :: RIVAL...: goes on when it fails.
measure() {
    local status=0
    run "$rivals" --json "$output" --rounds "$rounds" --seconds "$seconds" "$@" 2>"$scratch/err" </dev/null ||
        status=$?
    if [ "$status" -ne 0 ]; then
        failed=1
        tail -n 5 "$scratch/err" | sed 's/^/    /'
        printf 'failed %s: it ended with status %d\n' "${2%%,*}" "$status"
    fi
}

# ---- touching pages --------------------------------------------------------------------------------------------------

# pattern NAME BAR ARGUMENTS...: bench_pattern against the swap file.
pattern() {
    local name=$1 bar=$2
    shift 2
    product_of "$limit"
    rival_of "$limit"
    measure --figure "$name,pages/s,$bar" "${product[@]}" "$programs/bench_pattern" "$set_mib" "$@" :: \
        "${rival[@]}" "$programs/bench_pattern" "$set_mib" "$@"
}

row_touch() {
    pattern touch-sequential-clean '>=3' sequential 1 load
    pattern touch-sequential-dirty '>=2.5' sequential 1 store
    pattern touch-strided-clean '>=3' strided 1 load
    pattern touch-strided-dirty '>=2.5' strided 1 store
}

# disk NAME THREADS: loads beside the same reads without any pager, which is the most that the disk allows.
disk() {
    product_of "$limit"
    measure --figure "$1,pages/s," "${product[@]}" "$programs/bench_pattern" "$set_mib" random "$2" load :: \
        "$programs/bench_disk" "$scratch/disk" "$set_mib" $((100 * limit / set_mib)) "$2"
}

row_random() {
    pattern random-1-clean '>=1' random 1 load
    pattern random-1-dirty '>=1' random 1 store
    disk random-1-disk 1
    pattern random-4-clean '>=1.3' random 4 load
    pattern random-4-dirty '>=1.3' random 4 store
    disk random-4-disk 4
}

# zram_make ALGORITHM: a device before the swap file in order. Sets zram, or why.
zram_make() {
    why=
    if [ ! -e /sys/class/zram-control/hot_add ]; then
        why="this kernel has no zram"
    elif [ -e /sys/block/zram0/disksize ] && [ "$(cat /sys/block/zram0/disksize)" = 0 ]; then
        zram=0
    else
        zram=$(cat /sys/class/zram-control/hot_add)
    fi
    [ -z "$why" ] || return 0
    if ! echo "$1" 2>/dev/null >"/sys/block/zram$zram/comp_algorithm"; then
        why="zram has no $1"
    elif ! echo "${set_mib}M" >"/sys/block/zram$zram/disksize" || ! mkswap "/dev/zram$zram" >/dev/null ||
        ! swapon -p 100 "/dev/zram$zram"; then
        why="zram cannot be switched on"
    fi
    [ -z "$why" ] || zram_remove
}

# The data compress to a third. The compressed memory counts inside the limit, on both sides: half of it is for pages as
# they are, the other half takes the rest of the set. (zram is not charged to the cgroup, so its limit is half.)
row_zmem() {
    local algorithm arguments=("$set_mib" random 1 load text)
    product_of $((limit * 5 / 16)) --zmem "$((limit * 11 / 16))M"
    rival_of "$limit"
    measure --figure 'zmem-random-to-swap,pages/s,>=2' "${product[@]}" "$programs/bench_pattern" "${arguments[@]}" :: \
        "${rival[@]}" "$programs/bench_pattern" "${arguments[@]}"
    for algorithm in lz4 lzo-rle; do
        zram_make "$algorithm"
        if [ -n "$why" ]; then
            skip "zmem-random-to-zram-$algorithm" "$why"
            continue
        fi
        rival_of $((limit / 2))
        measure --figure "zmem-random-to-zram-$algorithm,pages/s,>=0.6" "${product[@]}" "$programs/bench_pattern" \
            "${arguments[@]}" :: "${rival[@]}" "$programs/bench_pattern" "${arguments[@]}"
        awk '{ printf "    zram held %.0f MiB in %.0f MiB at most\n", $1 / 1048576, $5 / 1048576 }' \
            "/sys/block/zram$zram/mm_stat"
        zram_remove
    done
}

# ---- programs that run from start to end -----------------------------------------------------------------------------

# program NAME COMMAND...: at half and at a quarter of its peak. As one would run it, with compressed memory inside the
# budget; and with the disk's tier only.
program() {
    local name=$1 top part row cluster
    shift
    top=$(peak "$@")
    for part in 2 4; do
        rival_of $((top / part))
        for cluster in "${clusters[@]}"; do
            cluster_set "$cluster"
            row=$name-$((100 / part))
            if has_budget zmem; then
                product_of $((top / part)) --zmem "$zmem_share"
                measure --figure "$row$suffix,s,>=1.2" --once --drop-caches "${product[@]}" "$@" :: "${rival[@]}" "$@"
            fi
            if has_budget nvme; then
                product_of $((top / part)) --summary "$scratch/summary"
                faults_begin
                measure --figure "$row-nvme$suffix,s,>=1" --once --drop-caches "${product[@]}" "$@" :: \
                    "${rival[@]}" "$@"
                faults_end "$row-nvme-faults$suffix" "$rounds" "$rounds"
            fi
        done
    done
    cluster_set "$cluster_usual"
    printf '    %s needs %d MiB\n' "$name" "$top"
}

has_budget() { [[ " ${budgets[*]} " == *" $1 "* ]]; }

row_dict() { dict_command && program dict "${command[@]}"; }
row_sort() { sort_command && program sort "${command[@]}"; }
row_sqlite() { sqlite_command && program sqlite "${command[@]}"; }

row_numpy() {
    if ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
        skip numpy-50 "python3 has no numpy"
        return
    fi
    numpy_command && program numpy "${command[@]}"
}

# ---- redis -----------------------------------------------------------------------------------------------------------

# redis_pair FIGURES... : the load on both servers.
redis_pair() {
    local load figures=()
    load=("$programs/bench_redis_load")
    while [ $# -gt 0 ]; do
        figures+=(--figure "$1")
        shift
    done
    measure "${figures[@]}" "${load[@]}" "$scratch/product" "$redis_keys" 1024 16 :: \
        "${load[@]}" "$scratch/rival" "$redis_keys" 1024 16
}

# commands NAME: tens of thousands that this server has done; nothing where it has ended.
commands() {
    redis-cli -s "$scratch/$1" info stats 2>/dev/null |
        awk -F: '$1 == "total_commands_processed" { print $2 / 10000 }' || true
}

# redis_at NAME BAR MIB OPTION...: both servers with so much memory; options of dsmrun.
redis_at() {
    local name=$1 bar=$2 commands_product= commands_rival=
    rival_of "$3"
    product_of "${@:3}" --summary "$scratch/summary"
    faults_begin
    if server product "${product[@]}" && server rival "${rival[@]}"; then
        redis_pair "$name$suffix,requests/s,$bar" "$name-p99$suffix,us,<=1"
        commands_product=$(commands product) commands_rival=$(commands rival)
    else
        failed=1
        echo "failed $name: a server does not answer"
    fi
    servers_end product rival
    [ -z "$commands_rival" ] || [[ $name != *-nvme ]] ||
        faults_end "$name-faults$suffix" "$commands_product" "$commands_rival"
}

row_redis() {
    local part cluster seconds=$seconds
    [ "$quick" = 1 ] || seconds=10
    redis_peak
    for part in 2 4; do
        for cluster in "${clusters[@]}"; do
            cluster_set "$cluster"
            ! has_budget zmem || redis_at "redis-$((100 / part))" '>=1.2' $((top / part)) --zmem "$zmem_share"
            ! has_budget nvme || redis_at "redis-$((100 / part))-nvme" '>=1' $((top / part))
        done
    done
    cluster_set "$cluster_usual"
    printf '    redis needs %d MiB\n' "$top"
}

# ---- what it costs ---------------------------------------------------------------------------------------------------

# The program fits: the library must not be felt. The rival is the same program without it, and without limit.
row_fits() {
    local name
    product_of 8192
    rival_of 0
    measure --figure 'fits-touch,pages/s,>=0.97' "${product[@]}" "$programs/bench_pattern" "$limit" random 1 store :: \
        "${rival[@]}" "$programs/bench_pattern" "$limit" random 1 store
    for name in sort sqlite numpy; do
        "${name}_command"
        measure --figure "fits-$name,s,>=0.97" --once "${product[@]}" "${command[@]}" :: "${rival[@]}" "${command[@]}"
    done
    if server product "${product[@]}" && server rival "${rival[@]}"; then
        redis_pair 'fits-redis,requests/s,>=0.97' 'fits-redis-p99,us,'
    fi
    servers_end product rival
}

# Beyond the budget: at most 1 % of what is managed, and 32 MiB.
row_memory() {
    local allowed
    allowed=$(awk -v set="$set_mib" 'BEGIN { printf "%.2f", set / 100 + 32 }')
    product_of "$limit"
    measure --figure 'memory-of-runtime,MiB,<=1' "$bench/footprint.sh" "$product_group" "$limit" "${product[@]:2}" \
        "$programs/bench_pattern" "$set_mib" random 4 store :: \
        sh -c "echo ready; while read -r _; do echo $allowed; done"
}

# ----------------------------------------------------------------------------------------------------------------------

if [ -z "${BENCH_CGROUP:-}" ]; then
    skip preload "$BENCH_NO_SWAP"
    exit 0
fi
machine | tee -a "$output"
printf '%-30s %10s %10s %-8s %7s  %7s %7s  %s\n' figure product reference unit ratio lowest highest bar
[ "${#rows[@]}" -gt 0 ] || rows=(touch random zmem redis sqlite sort numpy dict fits memory)
for row in "${rows[@]}"; do
    "row_$row"
done
[ "$failed" -eq 0 ]
