#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the demo: three nodes rank this distribution's packages, each with a DDR budget of a quarter of what
# it touches. The last line is "demo: ok ..." or "demo: FAILED ...", and the exit status says the same.
#
#   TIERMESH_BUILD=dir uses a build that is there already; NODES=, DDR=, CXL=, NVME= replace the choices below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    printf 'demo: FAILED: %s\n' "$*"
    exit 1
}

scripts/setup.sh || fail "the set-up"
build=${TIERMESH_BUILD:-}
if [ -z "$build" ]; then
    build=build/dev
    mkdir -p build
    { cmake --preset dev -Wno-dev && cmake --build --preset dev -j "$(nproc)" --target pkgrank dsmrun; } \
        >build/demo-build.log 2>&1 || { tail -n 40 build/demo-build.log; fail "the build (build/demo-build.log)"; }
fi

nodes=${NODES:-3}
# What a node of three touches is about three quarters of the lists: it loads a third, scans another one, keeps
# records of what it found, and reads those of the others. The table says what it was.
lists=0
for list in /var/lib/dpkg/status /var/lib/apt/lists/*_Packages*; do
    [ -r "$list" ] || continue
    case $list in
    *_Packages | */status) bytes=$(stat -c %s "$list") ;;
    *) bytes=$(/usr/lib/apt/apt-helper cat-file "$list" | wc -c) ;;
    esac
    lists=$((lists + bytes))
done
touched=$((lists * 3 / 4))
ddr=${DDR:-$((touched / 4))}
cxl=${CXL:-$((touched / 4))}
nvme=${NVME:-$((touched * 4 + (64 << 20)))}

# The file of the NVMe tier: on the disk that holds the build, and gone afterwards.
mkdir -p "$build"
build=$(cd "$build" && pwd)
store=$(mktemp -d "$build/demo.XXXXXX")
trap 'rm -rf "$store"' EXIT

printf 'demo: %d nodes, each with %s bytes of DDR, %s of CXL (emulated) and %s of NVMe in %s\n' \
    "$nodes" "$ddr" "$cxl" "$nvme" "${store#"$PWD"/}"
status=0
"$build/dsmrun" -n "$nodes" --ddr "$ddr" --cxl "$cxl" --nvme "$nvme:$store" \
    --timeout "${TIMEOUT:-300}" -- "$build/pkgrank" </dev/null || status=$?
[ "$status" -eq 0 ] || fail "dsmrun ended with status $status"
