#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh [options] -- COMMAND: boots guests, runs COMMAND in each, prints what they printed, powers them off. Options,
# exit status and what a guest finds: docs/RIG.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$rig/machine.sh"

boot_limit_s=60

nodes=1 cpus=2 memory=1024 limit_s=120 accel=${RIG_ACCEL:-} keep=
cxl='' cxl_use=node hmat='' nvme='' pool='' rxe='' ssh=''
build=${TIERMESH_BUILD:-$source_tree/build/dev}

wrong() { die 2 "$* (docs/RIG.md lists the options)"; }

# number OPTION VALUE LOWEST HIGHEST UNIT
number() {
    case $2 in
    '' | *[!0-9]* | ???????*) wrong "$1 $2: a number of $5 from $3 to $4 is needed" ;;
    esac
    [ "$((10#$2))" -ge "$3" ] && [ "$((10#$2))" -le "$4" ] || wrong "$1 $2: $5 from $3 to $4 are possible"
    echo "$((10#$2))"
}

# ---- arguments -----------------------------------------------------------------------------------------------------

while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --rxe) rxe=yes ;;
    --ssh) ssh=yes ;;
    -n | -c | -m | -t | --build | --cxl | --cxl-dax | --hmat | --nvme | --pool | --keep | --accel)
        [ $# -gt 1 ] && [ "$2" != -- ] || wrong "$1 needs a value"
        case $1 in
        -n) nodes=$(number "$1" "$2" 1 2 guests) ;;
        -c) cpus=$(number "$1" "$2" 1 8 processors) ;;
        -m) memory=$(number "$1" "$2" 256 65536 MiB) ;;
        -t) limit_s=$(number "$1" "$2" 1 7200 seconds) ;;
        --build) build=$2 ;;
        --cxl | --cxl-dax)
            [ -z "$cxl" ] || wrong "$1: there is one CXL device, and it is asked for already"
            # Memory goes on line by blocks, and the region is aligned to 256 MiB.
            cxl=$(number "$1" "$2" 256 3840 MiB)
            [ $((cxl % 256)) = 0 ] || wrong "$1 $2: a multiple of 256 MiB is needed"
            [ "$1" = --cxl ] || cxl_use=dax
            ;;
        --hmat) hmat=$(number "$1" "$2" 128 65536 MiB) ;;
        --nvme) nvme=$(number "$1" "$2" 16 65536 MiB) ;;
        --pool)
            pool=$(number "$1" "$2" 128 4096 MiB)
            [ $((pool % 128)) = 0 ] || wrong "$1 $2: a multiple of 128 MiB is needed"
            ;;
        --keep) keep=$2 ;;
        --accel) accel=$2 ;;
        esac
        shift
        ;;
    *) wrong "there is no option $1" ;;
    esac
    shift
done
[ $# -gt 1 ] || wrong "a command for the guests is needed, behind --"
shift
command=$*
[ -z "$cxl" ] || [ -z "$hmat" ] || wrong "--cxl and --hmat are node 1 both; one of them at a time"
[ -z "$ssh" ] || [ "$nodes" -gt 1 ] || wrong "--ssh is between two guests: -n 2"
case $accel in
'' | kvm | tcg) ;;
*) wrong "--accel $accel: it takes kvm or tcg" ;;
esac
[ -d "$build" ] || wrong "$build is no folder; --build names the build for the guests"
build=$(cd "$build" && pwd)
case $build$source_tree in
*,*) wrong "QEMU takes no folder with a comma in its name: $build" ;;
esac

# ---- what must be there --------------------------------------------------------------------------------------------

if [ -z "${RIG_BUILDING:-}" ]; then
    lacks=$(rig_lacks)
    [ -z "$lacks" ] || die 3 "$lacks"
fi
accel=${accel:-$(cat "$out/accel")}
# KVM cannot execute from memory that is a device, and the kernel puts anything on a node.
[ -z "$cxl" ] || accel=tcg
[ "$accel" != kvm ] || [ -w /dev/kvm ] || die 3 "/dev/kvm cannot be opened; --accel tcg runs without it"
need_mib=$((nodes * (memory + ${hmat:-0} + ${cxl:-0}) + ${pool:-0}))
have_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
[ "$need_mib" -le "$have_mib" ] || die 3 "the guests want $need_mib MiB of memory, and $have_mib are available"
if [ -n "$keep" ]; then
    mkdir -p "$keep" 2>/dev/null && [ -w "$keep" ] || die 1 "--keep $keep: that folder cannot be written"
    keep=$(cd "$keep" && pwd)
fi

# ---- the job -------------------------------------------------------------------------------------------------------

# A short path: unix sockets lie in it.
jobs=${TMPDIR:-/tmp}
# What was left by a boot.sh whose reaper was killed as well, or by a crash of this machine.
for stale in "$jobs"/tiermesh-rig.??????; do
    if [ -O "$stale" ] && [ -e "$stale/lock" ] && flock -n "$stale/lock" true; then
        "$rig/reap.sh" "$stale" </dev/null
    fi
done
job=$(mktemp -d "$jobs/tiermesh-rig.XXXXXX") || die 1 "no folder for this run can be made in $jobs"
exec {lock}>"$job/lock"
flock -n "$lock"
: >"$job/pids"
exec {alive}> >(exec setsid -f "$rig/reap.sh" "$job" >/dev/null 2>&1 {lock}>&-)

finish() {
    local status=$? turn
    trap '' INT TERM HUP
    # The reaper ends the guests and removes the files, on this way out as on any other.
    exec {alive}>&- {lock}>&-
    for ((turn = 0; turn < 200; turn++)); do
        [ -e "$job" ] || exit "$status"
        sleep 0.05
    done
    die 1 "$job is still there after 10 s"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if [ -n "$pool" ]; then
    truncate -s "${pool}M" "$job/pool"
fi
cpus_most=$((cpus < 2 ? 2 : cpus))
printf '%s\n' "$build" >"$job/build"
processes=()
started_ms=$(date +%s%3N)
for ((node = 1; node <= nodes; node++)); do
    printf '%s\n' "$command" >"$job/command.$node"
    machine_arguments
    (rig_program /usr/bin/qemu-system-x86_64 "${arguments[@]}") </dev/null >"$job/qemu.$node" 2>&1 \
        {alive}>&- {lock}>&- &
    processes+=($!)
    echo $! >>"$job/pids"
    disown $!
done

# ---- until all are off ---------------------------------------------------------------------------------------------

running() {
    local pid
    for pid in "${processes[@]}"; do
        ! kill -0 "$pid" 2>/dev/null || return 0
    done
    return 1
}

# A command that failed: whoever waits for it waits in vain.
failed() {
    local file
    for file in "$job"/status.?; do
        if [ -e "$file" ] && [ "$(cat "$file")" != 0 ]; then
            return 0
        fi
    done
    return 1
}

deadline=$((SECONDS + limit_s))
late='' hurried=''
while running; do
    if [ -z "$hurried" ] && failed; then
        hurried=yes
        deadline=$((SECONDS + 5 < deadline ? SECONDS + 5 : deadline))
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
        late="${hurried:+a command failed and another guest went on}"
        late=${late:-the time was up ($limit_s s)}
        break
    fi
    if [ "$SECONDS" -ge "$boot_limit_s" ] && [ ! -e "$job/ready.1" ]; then
        late="no guest was ready within $boot_limit_s s"
        break
    fi
    sleep 0.1
done

# explain NODE: on standard error, what is known of a guest whose command failed.
explain() {
    local name
    for name in qemu devices console; do
        if [ -s "$job/$name.$1" ]; then
            printf -- '-- node %s, %s:\n' "$1" "$name"
            tail -n 15 "$job/$name.$1" | tr -d '\r'
        fi
    done >&2
}

status=0
for ((node = 1; node <= nodes; node++)); do
    of_node=$(cat "$job/status.$node" 2>/dev/null || echo none)
    [ "$nodes" = 1 ] || printf -- '-- node %d: status %s\n' "$node" "$of_node"
    cat "$job/output.$node" 2>/dev/null || true
    cat "$job/errors.$node" >&2 2>/dev/null || true
    if [ "$of_node" != 0 ]; then
        [ "$status" != 0 ] || [ "$of_node" = none ] || status=$of_node
        explain "$node"
    fi
done
if [ -z "$late" ] && [ "$(cat "$job"/status.? 2>/dev/null | wc -l)" -lt "$nodes" ]; then
    late="a guest went off before its command ended"
fi
[ -z "$late" ] || [ "$status" != 0 ] || status=124
if [ -n "$keep" ]; then
    for name in command output errors status ready devices console kernel qemu; do
        cp "$job/$name".* "$keep/" 2>/dev/null || true
    done
fi
ready=$(cat "$job"/ready.* 2>/dev/null | sort -n | tail -n 1 || true)
wall_ms=$(($(date +%s%3N) - started_ms))
say "$nodes guest(s) emulated by QEMU ($accel): ready after ${ready:-never} s, $((wall_ms / 1000)) s in all," \
    "status $status${late:+; $late}"
exit "$status"
