#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds for release and runs one suite of benchmarks: bench/SUITE.sh BUILD_DIRECTORY OUTPUT.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=${1:-}
if [ -z "$suite" ] || [ ! -x "bench/$suite.sh" ]; then
    echo "usage: make bench SUITE=x, one of:" >&2
    find bench -maxdepth 1 -name '*.sh' -perm -u+x -printf '    %f\n' | sed 's/\.sh$//' | sort >&2
    exit 2
fi
mkdir -p build/bench
cmake --preset release -Wno-dev >build/bench/configure.log || { cat build/bench/configure.log >&2; exit 1; }
cmake --build --preset release -j "$(nproc)"
exec "bench/$suite.sh" build/release "build/bench/$suite.jsonl" </dev/null
