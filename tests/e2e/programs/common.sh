# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of real programs. Each runs a program natively, then under the preload library with a DDR budget
# of a quarter of its peak, compares what both produced, and fails unless pages were evicted: without that it would have
# proved nothing.
#
# The halves run in ./native and ./managed of a scratch directory, their standard output in ./out there. What a half
# starts is ended by its process id, and the directory goes, however the test ends.
set -euo pipefail

build=${TIERMESH_BUILD:?the build directory}
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
dsmrun=$build/dsmrun
name=$(basename "$0" .sh)

# Results must not depend on who runs the test, nor on the debugging aids of allocators.
unset MALLOC_ARENA_MAX MALLOC_CONF MALLOC_PERTURB_ GLIBC_TUNABLES LD_PRELOAD PYTHONMALLOC NODE_OPTIONS JAVA_TOOL_OPTIONS
export LC_ALL=C TZ=UTC PYTHONHASHSEED=1 PERL_HASH_SEED=1

# A test may have set a directory that others than the caller can reach.
scratch=$(mktemp -d "${scratch_parent:-$build}/program-$name.XXXXXX")
mkdir "$scratch/native" "$scratch/managed"
export TMPDIR=$scratch
cd "$scratch"

share_percent=25                  # of the peak: the DDR budget
lower=(--nvme "4G:$scratch")      # the tiers below it; a test may set others
limit_s=${limit_s:-150}           # for each half
as_user=()                        # what changes to an ordinary user, put before the program
server=                           # the process id of what serve_* started
peak_kib=0

say() { printf '%s: %s\n' "$name" "$*"; }

fail() {
    say "FAILED: $*" >&2
    for file in native/err managed/err managed/summary; do
        [ ! -s "$file" ] || { echo "-- $file" && tail -n 40 "$file"; } >&2
    done
    exit 1
}

leave() {
    local status=$?
    [ -z "$server" ] || end_server KILL || true
    if [ -n "${TIERMESH_KEEP:-}" ]; then
        say "kept: $scratch"
    else
        cd / && rm -rf "$scratch"
    fi
    return "$status"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP

# need PROGRAM PACKAGE: its path; the test is skipped where it is not installed.
need() {
    if ! command -v "$1"; then
        say "$1 is not installed (package $2)" >&2
        exit 77
    fi
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

budget_kib() {
    local kib=$((peak_kib * share_percent / 100))
    echo $((kib < 4096 ? 4096 : kib))
}

# natively COMMAND...: its result is in native/out, its peak in $peak_kib.
natively() {
    local started status=0
    started=$(milliseconds)
    (cd native && "${as_user[@]}" timeout "$limit_s" "$time" -f %M -o peak "$@" >out 2>err </dev/null) || status=$?
    [ "$status" -eq 0 ] || fail "natively it exits with $status: $*"
    native_ms=$(($(milliseconds) - started))
    peak_kib=$(tail -n 1 native/peak)
}

# launcher: sets $launcher to dsmrun with the budget and tiers of this test.
launcher() {
    launcher=("$dsmrun" --ddr "$(budget_kib)K" "${lower[@]}" --summary="$scratch/managed/summary"
        --timeout "$limit_s" -- "${as_user[@]}")
}

# managed COMMAND...: the same under the library.
managed() {
    local started status=0
    started=$(milliseconds)
    launcher
    (cd managed && "${launcher[@]}" "$time" -f %M -o peak "$@" >out 2>err </dev/null) || status=$?
    [ "$status" -eq 0 ] || fail "under the library it exits with $status: $*"
    managed_ms=$(($(milliseconds) - started))
    managed_kib=$(tail -n 1 managed/peak)
    evicted
}

# serve HALF COMMAND...: a server in the background, its process id in $server. HALF is native or managed.
serve() {
    local half=$1
    shift
    cd "$half"
    if [ "$half" = native ]; then
        "${as_user[@]}" "$@" >out 2>err </dev/null &
    else
        launcher
        "${launcher[@]}" "$@" >out 2>err </dev/null &
    fi
    server=$!
    cd ..
}

# answers COMMAND...: the server serves; it fails when it has ended before.
answers() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        "$@" >/dev/null 2>&1 && return 0
        kill -0 "$server" 2>/dev/null || fail "the server has ended"
        sleep 0.05
    done
    fail "the server does not answer: $*"
}

# end_server [SIGNAL]: ends it in order and waits. dsmrun passes the signal on.
end_server() {
    local pid=$server
    server=
    kill -s "${1:-TERM}" "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null
}

# peak_of PID: the most memory that the process has had, KiB.
peak_of() { awk '/^VmHWM/ {print $2}' "/proc/$1/status"; }

# child_named NAME PID: the process of that name among the descendants of PID.
child_named() {
    local child
    for child in $(cat /proc/"$2"/task/*/children 2>/dev/null); do
        if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = "$1" ]; then
            echo "$child"
        else
            child_named "$1" "$child"
        fi
    done
}

# figure WHAT: over all processes in the summary, the MiB evicted (rounded up) or the number of faults.
figure() {
    awk -v what="$1" '
        what == "evicted" && $1 == "evicted" {
            sum += $2 * ($3 ~ /^GiB/ ? 1024 : $3 ~ /^MiB/ ? 1 : $3 ~ /^KiB/ ? 1 / 1024 : 0)
        }
        what == "faults" && $1 == "faults" { for (i = 3; i < NF; i++) if ($(i + 1) == "p50") sum += $i }
        END { printf "%d\n", (sum > 0 && sum < 1) ? 1 : sum }' managed/summary
}

evicted() {
    [ -s managed/summary ] || fail "there is no summary"
    evictions=$(figure evicted)
    faults=$(figure faults)
    [ "$evictions" -gt 0 ] && [ "$faults" -gt 0 ] || fail "nothing was evicted: the test proves nothing"
}

# same FILE...: both halves made the same bytes, and some.
same() {
    local file
    for file in "$@"; do
        [ -s "native/$file" ] || fail "the native half made no $file"
        cmp "native/$file" "managed/$file" || fail "$file differs"
    done
}

# verdict: the line that ends a good test.
verdict() {
    say "ok: native $native_ms ms, peak $((peak_kib / 1024)) MiB; with $(($(budget_kib) / 1024)) MiB $managed_ms ms," \
        "peak $((managed_kib / 1024)) MiB, $evictions MiB evicted, $faults faults"
}

time=$(need time time)
