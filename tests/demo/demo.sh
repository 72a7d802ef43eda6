#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh BUILD whole|nodes|killed|refused: the demo as users run it, and what it says when a node dies under it.
set -euo pipefail
build=$1
kind=$2
source=${TIERMESH_SOURCE:?}
scratch=$(mktemp -d "$build/demo-test.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The kernel may refuse what every node needs; then there is nothing to test here.
if "$build/dsmrun" -n 1 -- "$build/pkgrank" "$scratch/none" 2>&1 </dev/null | grep -q 'userfaultfd'; then
    echo "userfaultfd is refused on this machine"
    exit 77
fi

run() {
    TIERMESH_BUILD=$build TIMEOUT=200 "$@" "$source/scripts/demo.sh" >"$scratch/output" 2>&1 </dev/null
}

# verdict PATTERN: what the last line must be.
verdict() {
    if ! tail -n 1 "$scratch/output" | grep -qE "$1"; then
        printf 'the last line is not /%s/:\n' "$1"
        cat "$scratch/output"
        exit 1
    fi
}

case $kind in
whole)
    run env || { cat "$scratch/output"; exit 1; }
    verdict '^demo: ok: [0-9]+ packages'
    for word in libc6 emulated 'from remote' 'from nvme' 'from cxl' 'messages sent' 'wall time' 'largest difference'
    do
        grep -q "$word" "$scratch/output" || { echo "the output has no '$word'"; cat "$scratch/output"; exit 1; }
    done
    ;;
nodes)
    for nodes in 1 2 5; do
        run env NODES=$nodes || { cat "$scratch/output"; exit 1; }
        verdict "^demo: ok: .* on $nodes nodes"
    done
    ;;
killed)
    status=0
    run env & script=$!
    victim=
    for _ in $(seq 200); do
        victim=$(ps -eo pid=,args= | awk -v p="$build/pkgrank" '$2 == p {print $1}' | tail -n 1)
        [ -n "$victim" ] && grep -q 'stanzas' "$scratch/output" && break
        sleep 0.05
    done
    [ -n "$victim" ] || { echo "no node to kill"; cat "$scratch/output"; exit 1; }
    kill -KILL "$victim"
    wait "$script" || status=$?
    [ "$status" -ne 0 ] || { echo "a node was killed, and the demo does not mind"; cat "$scratch/output"; exit 1; }
    verdict '^demo: FAILED'
    ;;
refused)
    if run env NVME=64M DDR=999T; then
        echo "a budget larger than any machine was accepted"
        exit 1
    fi
    verdict '^demo: FAILED'
    grep -q 'larger than this machine' "$scratch/output" || { cat "$scratch/output"; exit 1; }
    ;;
*)
    exit 2
    ;;
esac
[ -z "$(find "$build" -maxdepth 1 -name 'demo.??????')" ] || { echo "the demo left its store behind"; exit 1; }
echo "demo $kind: ok"
