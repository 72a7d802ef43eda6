#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rig.sh BUILD_DIRECTORY OUTPUT.jsonl [--quick]: what can be told in virtual machines with emulated devices: counts, and
# ratios to perftest in the same guests. Prints a table and a line "met|missed|skipped NAME ..." for each bar. The exit
# status says whether everything ran, not whether every bar was met.
set -euo pipefail

build=$(realpath "$1") output=$(realpath -m "$2")
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
rounds=5
[ "${3-}" != --quick ] || rounds=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$(dirname "$output")"
: >"$output"
verdicts=()

source "$bench/qemu/common.sh"
"$bench/qemu/build.sh" || exit $?

# judge NAME VALUE UNIT [at-most|at-least BAR]
judge() {
    local verdict=
    printf '%-28s %12s %-8s %s\n' "$1" "$2" "$3" "${4:+$4 $5}"
    printf '{"name":"%s","value":%s,"unit":"%s","emulated":true}\n' "$1" "$2" "$3" >>"$output"
    [ -n "${4-}" ] || return 0
    verdict=$(awk -v value="$2" -v bar="$5" -v kind="$4" \
        'BEGIN { print (kind == "at-most" ? value <= bar : value >= bar) ? "met" : "missed" }')
    verdicts+=("$verdict $1 $2 $4 $5")
}

# median NAME: of the rounds; nothing when there are none.
median() {
    awk -v name="$1" '$1 == "round" && $2 == name { print $3 }' "$scratch/rdma" | sort -n |
        awk '{ value[NR] = $1 } END { if (NR) print value[int((NR + 1) / 2)] }'
}

echo "all devices are emulated by QEMU ($(cat "$out/accel")): times say nothing about hardware, ratios and counts do"
judge rig-from-nothing "$(cat "$out/seconds")" s at-most 720
"$bench/qemu/boot.sh" --build "$build" --keep "$scratch/boot" -n 2 -c 1 --rxe --nvme 64 -- true >/dev/null
judge rig-boot "$(sort -n "$scratch"/boot/ready.* | tail -n 1)" s at-most 60

"$bench/qemu/boot.sh" --build "$build" -n 2 -c 1 --rxe --ssh -t $((120 + rounds * 180)) -- \
    "bash -eu /source/bench/rig_rdma.sh $rounds" >"$scratch/rdma" || { cat "$scratch/rdma"; exit 1; }
for name in read-lat send-lat atomic-lat bare-fault; do
    judge "$name" "$(median "$name")" us
done
judge read-bw "$(median read-bw)" MiB/s
for transport in tcp verbs; do
    fault=$(median "remote-fault-$transport")
    if [ -z "$fault" ]; then
        verdicts+=("skipped remote-fault-$transport: this build has no such transport")
        continue
    fi
    ratio=$(awk -v fault="$fault" -v read="$(median read-lat)" -v bare="$(median bare-fault)" \
        'BEGIN { printf "%.3f", fault / (read + bare) }')
    if [ "$transport" = verbs ]; then
        judge remote-fault-verbs "$ratio" ratio at-most 1.5
    else
        judge "remote-fault-$transport" "$ratio" ratio
    fi
done

echo
echo "tiers of an unchanged program that touches 24 MiB at random (slower node and disk emulated):"
"$bench/qemu/boot.sh" --build "$build" -c 2 --hmat 256 --nvme 256 -- "bash -eu /source/bench/rig_tiers.sh"
printf '%s\n' "${verdicts[@]}"
