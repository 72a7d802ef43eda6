#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# host.sh refuses|killed|statuses BUILD: the rig's own promises on the host: what it refuses and how it says so, that
# nothing is left however it ends, and what its exit status says.
set -euo pipefail
kind=$1 build=$2
source=${TIERMESH_SOURCE:?}
boot=$source/bench/qemu/boot.sh
make_rig=$source/bench/qemu/build.sh
scratch=$(mktemp -d "$build/rig-test.XXXXXX")
# The runs' files lie there, so that what is left of them is seen; in /tmp, since unix sockets have short paths.
export TMPDIR
TMPDIR=$(mktemp -d /tmp/rigt.XXXXXX)
mounted=
leave() {
    [ -z "$mounted" ] || umount "$mounted"
    rm -rf "$scratch" "$TMPDIR"
}
trap leave EXIT

need_rig() {
    "$make_rig" --check || exit 77
}

# says STATUS PATTERN COMMAND...: it ends with that status and with a sentence that says so.
says() {
    local expected=$1 pattern=$2 status=0
    shift 2
    timeout 100 "$@" >"$scratch/said" 2>&1 </dev/null || status=$?
    if [ "$status" != "$expected" ] || ! grep -qE -e "$pattern" "$scratch/said"; then
        printf 'status %s (not %s) or no sentence with /%s/: %s\n' "$status" "$expected" "$pattern" "$*"
        cat "$scratch/said"
        exit 1
    fi
}

nothing_left() {
    local left
    left=$(find "$TMPDIR" -mindepth 1)
    [ -z "$left" ] || { printf '%s: files are left:\n%s\n' "$1" "$left"; exit 1; }
    for file in /proc/[0-9]*/cmdline; do
        ! tr '\0' '\n' 2>/dev/null <"$file" | grep -qF "$TMPDIR/" || { echo "$1: ${file%/cmdline} still runs"; exit 1; }
    done
}

refuse_arguments() {
    says 2 'no option --cxll' "$boot" --cxll 512 -- true
    says 2 'a command .* is needed' "$boot"
    says 2 'a command .* is needed' "$boot" -n 2 --
    says 2 '-n needs a value' "$boot" -n -- true
    says 2 '-n 3: .* from 1 to 2' "$boot" -n 3 -- true
    says 2 '-m 1G: a number of MiB' "$boot" -m 1G -- true
    says 2 '-m 08: MiB from 256' "$boot" -m 08 -- true
    says 2 '-m 99999999: a number' "$boot" -m 99999999 -- true
    says 2 'multiple of 256' "$boot" --cxl 300 -- true
    says 2 'one CXL device' "$boot" --cxl 512 --cxl-dax 512 -- true
    says 2 'node 1 both' "$boot" --cxl 512 --hmat 512 -- true
    says 2 'between two guests' "$boot" --ssh -- true
    says 2 'kvm or tcg' "$boot" --accel fast -- true
    says 2 'is no folder' "$boot" --build "$scratch/none" -- true
    mkdir "$scratch/with,comma"
    says 2 'with a comma' "$boot" --build "$scratch/with,comma" -- true
    says 2 'no argument but --check' "$make_rig" --clean
}

refuse_places() {
    says 3 'make rig builds it' env RIG_OUT="$scratch/none" "$boot" --build "$build" -- true
    says 1 'make rig builds it' env RIG_OUT="$scratch/none" "$make_rig" --check
    touch "$scratch/file"
    says 1 'RIG_OUT names another place' env RIG_OUT="$scratch/file/below" "$make_rig"
    # Nobody listens at this address: a network that is not there.
    says 77 'is there a network' env RIG_OUT="$scratch/net" RIG_MIRROR=http://127.0.0.1:9/none "$make_rig"
    # A rig that lost its QEMU, and one of other scripts.
    mkdir "$scratch/hollow"
    cat "$source"/bench/qemu/{packages.sh,build.sh,guest/init.sh} | sha256sum | cut -d ' ' -f 1 >"$scratch/hollow/stamp"
    says 3 'has no QEMU' env RIG_OUT="$scratch/hollow" "$boot" --build "$build" -- true
    echo old >"$scratch/hollow/stamp"
    says 3 'by other scripts' env RIG_OUT="$scratch/hollow" "$boot" --build "$build" -- true
    mkdir "$scratch/small"
    if mount -t tmpfs -o size=4m small "$scratch/small" 2>/dev/null; then
        mounted=$scratch/small
        says 77 'has room for . MiB' env RIG_OUT="$scratch/small" "$make_rig"
        umount "$mounted"
        mounted=
    else
        echo "not tested: a disk that is full, since nothing can be mounted here"
    fi
}

# killed_by SIGNAL: boot.sh, in the middle of a run.
killed_by() {
    local pid turn
    setsid "$boot" --build "$build" --nvme 64 -n 2 -c 1 -t 60 -- 'sleep 50' >"$scratch/said" 2>&1 </dev/null &
    pid=$!
    for ((turn = 0; turn < 600; turn++)); do
        ! compgen -G "$TMPDIR/tiermesh-rig.*/ready.2" >/dev/null || break
        sleep 0.1
    done
    [ "$turn" -lt 600 ] || { echo "no guest was ready within 60 s"; cat "$scratch/said"; kill -KILL "$pid"; exit 1; }
    kill -"$1" "$pid"
    wait "$pid" || true
    for ((turn = 0; turn < 50; turn++)); do
        compgen -G "$TMPDIR/*" >/dev/null || break
        sleep 0.1
    done
    nothing_left "SIG$1"
}

case $kind in
refuses)
    refuse_arguments
    refuse_places
    nothing_left "what was refused"
    ;;
killed)
    need_rig
    killed_by KILL
    killed_by TERM
    # Nor of a run whose every process was killed: the next one takes its files away.
    mkdir -p "$TMPDIR/tiermesh-rig.staleX"
    touch "$TMPDIR"/tiermesh-rig.staleX/{lock,pids}
    "$boot" --build "$build" -- true
    nothing_left "the next run"
    ;;
statuses)
    need_rig
    says 7 'status 7' "$boot" --build "$build" -- 'exit 7'
    says 124 'the time was up' "$boot" --build "$build" -t 15 -- 'sleep 60'
    says 124 "ready after never" "$boot" --build "$build" -t 1 -- true
    says 5 'another guest went on' "$boot" --build "$build" -n 2 -c 1 -- '[ $NODE = 2 ] || exit 5; sleep 60'
    says 0 'node 1: status 0' "$boot" --build "$build" -n 2 -c 1 -- '[ $NODE = 2 ] || rig-crash; sleep 2; echo lives'
    grep -q lives "$scratch/said" || { echo "the other guest did not live on"; cat "$scratch/said"; exit 1; }
    says 124 "before its command ended" "$boot" --build "$build" -- 'echo o >/proc/sysrq-trigger; sleep 30'
    nothing_left "runs that failed"
    ;;
*)
    exit 2
    ;;
esac
echo "rig $kind: ok"
