#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rig.sh BUILD_DIRECTORY OUTPUT.jsonl [--quick]: what can be told in virtual machines with emulated devices: counts, and
# ratios to perftest in the same guests. Prints a table and a line "met|missed|skipped NAME ..." for each bar. The exit
# status says whether everything ran, not whether every bar was met.
set -euo pipefail

build=$(realpath "$1") output=$(realpath -m "$2")
bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
rounds=5 quick=
[ "${3-}" != --quick ] || rounds=1 quick=--quick
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

# compare NAME REFERENCE [at-most|at-least BAR]: the median of NAME as a ratio to that figure.
compare() {
    local name=$1 reference=$2 value=
    shift 2
    value=$(median "$name")
    if [ -z "$value" ]; then
        verdicts+=("skipped $name: this build has no such transport")
        return 0
    fi
    judge "$name" "$(awk -v value="$value" -v reference="$reference" 'BEGIN { printf "%.3f", value / reference }')" \
        ratio "$@"
}

echo "all devices are emulated by QEMU ($(cat "$out/accel")): times say nothing about hardware, ratios and counts do"
judge rig-from-nothing "$(cat "$out/seconds")" s at-most 720
"$bench/qemu/boot.sh" --build "$build" --keep "$scratch/boot" -n 2 -c 1 --rxe --nvme 64 -- true >/dev/null
judge rig-boot "$(sort -n "$scratch"/boot/ready.* | tail -n 1)" s at-most 60

"$bench/qemu/boot.sh" --build "$build" -n 2 -c 1 --rxe --ssh -t $((120 + rounds * 180)) -- \
    "bash -eu /source/bench/rig_rdma.sh $rounds $quick" >"$scratch/rdma" || { cat "$scratch/rdma"; exit 1; }
for name in read-lat send-lat atomic-lat bare-fault; do
    judge "$name" "$(median "$name")" us
done
judge read-bw "$(median read-bw)" MiB/s
fault=$(awk -v read="$(median read-lat)" -v bare="$(median bare-fault)" 'BEGIN { print read + bare }')
compare remote-fault-tcp "$fault"
compare remote-fault-verbs "$fault" at-most 1.5
compare read-tcp "$(median read-bw)"
compare read-verbs "$(median read-bw)" at-least 0.9
compare one-sided-verbs 1
compare message-verbs "$(median send-lat)" at-most 1.3
compare atomic-tcp "$(median atomic-lat)"
compare atomic-verbs "$(median atomic-lat)" at-most 1.3
compare lock-busy-tcp "$(median lock-idle-tcp)"
compare lock-busy-verbs "$(median lock-idle-verbs)" at-most 2

echo
echo "placement of an unchanged program that touches 32 MiB with Zipf's weights, 8 MiB near (slower node emulated):"
for node in "--hmat 256" "--cxl 512"; do
    # shellcheck disable=SC2086
    "$bench/qemu/boot.sh" --build "$build" -c 2 $node -t 190 -- "bash -eu /source/bench/rig_placement.sh 75" \
        >"$scratch/placement" || { cat "$scratch/placement"; exit 1; }
    grep -v '^round' "$scratch/placement"
    name=$(awk '{ print substr($1, 3) }' <<<"$node")
    for figure in placement-oracle placement-first-come placement; do
        value=$(awk -v name="$figure" '$1 == "round" && $2 == name { print $3 }' "$scratch/placement")
        if [ "$figure" = placement ]; then
            judge "placement-$name" "$value" share at-least 0.93
        else
            judge "$figure-$name" "$value" share
        fi
    done
done

echo
echo "tiers of an unchanged program that touches 24 MiB at random (slower node and disk emulated):"
"$bench/qemu/boot.sh" --build "$build" -c 2 --hmat 256 --nvme 256 -- "bash -eu /source/bench/rig_tiers.sh"
printf '%s\n' "${verdicts[@]}"
