#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The default check: what a change must pass. check.sh [LABEL] runs only the tests with that label, in the dev build.
#
#   dev     gcc: every test but the long ones
#   clang   builds without a warning
#   asan    unit, simulator, contract and fuzz tests under the address and undefined-behaviour sanitizers
#   tsan    tests with threads under the thread sanitizer
#   rig     the dev build in virtual machines (docs/RIG.md), where they can be had
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

label=${1:-}
jobs=$(nproc)
logs=build/check
mkdir -p "$logs"
rm -f "$logs"/*.log
summary=()
failed=0

note() {
    summary+=("$*")
    printf '\n== %s\n' "$*"
}

# step NAME COMMAND...: runs it, shows its output, keeps its closing lines for the summary.
step() {
    local name=$1 started=$SECONDS status=0
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" 2>&1 </dev/null | tee "$logs/$name.log" || status=$?
    local closing
    closing=$(grep -E '^[0-9]+% tests passed' "$logs/$name.log" | tail -n 1 || true)
    if [ "$status" -eq 77 ]; then
        note "$name: skipped: $(tail -n 1 "$logs/$name.log")"
        return 0
    fi
    if [ "$status" -ne 0 ]; then
        failed=1
        note "$name: FAILED after $((SECONDS - started)) s${closing:+: $closing}"
        return 0
    fi
    note "$name: ok in $((SECONDS - started)) s${closing:+: $closing}"
}

build() { cmake --preset "$1" -Wno-dev && cmake --build --preset "$1" -j "$jobs"; }
build_and_test() { build "$1" && ctest --preset "$1" -j "$jobs"; }
test_label() { build dev && ctest --preset all -j "$jobs" -L "^$label\$"; }

# Status 77 is "cannot be had here", with the reason above it.
rig_build() { timeout -k 10 1200 bench/qemu/build.sh; }
# An emulated guest on a busy machine can be too slow for its own protocols; what fails twice in a row fails.
rig_test() { timeout -k 10 2400 ctest --preset all -j "$jobs" -L '^rig$' --repeat until-pass:2; }

if [ "$label" = rig ]; then
    step rig-build rig_build
    step rig test_label
elif [ -n "$label" ]; then
    step "$label" test_label
else
    step clang build clang
    step asan build_and_test asan
    step tsan build_and_test tsan
    step dev build_and_test dev
    step rig-build rig_build
    step rig rig_test
fi

printf '\n== summary (logs: %s)\n' "$logs"
printf '%s\n' "${summary[@]}"
skipped=$(grep -hE '^[[:space:]]+[0-9]+ - .*\(Skipped\)' "$logs"/*.log | sort -u || true)
if [ -n "$skipped" ]; then
    printf 'skipped, not passed:\n%s\n' "$skipped"
fi
[ "$failed" -eq 0 ] && echo "check: ok" || { echo "check: FAILED"; exit 1; }
