#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# consumer.sh pkg-config|find-package|readme BUILD CC CXX: installs the build into a fresh prefix and builds a program
# against that prefix alone. Exit code 77: the program says that this machine refuses what it needs.
set -euo pipefail
kind=$1
build=$2
cc=$3
cxx=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
library=$(find "$prefix" -name 'libtiermesh.so' -printf '%h\n')
[ -n "$library" ] || { echo "no libtiermesh.so was installed"; exit 1; }

# Runs a program and expects it to say $1.
expect() {
    local said=$1 status=0 output
    shift
    output=$(LD_LIBRARY_PATH=$library timeout 30 "$@") || status=$?
    [ "$status" -ne 77 ] || { echo "$output"; exit 77; }
    if [ "$status" -ne 0 ] || ! grep -qF "$said" <<<"$output"; then
        printf '%s: status %d, said:\n%s\n' "$*" "$status" "$output"
        exit 1
    fi
}

case $kind in
pkg-config)
    # Moved after it was installed: the .pc file holds no absolute path.
    mv "$prefix" "$scratch/moved"
    library=$scratch/moved${library#"$prefix"}
    export PKG_CONFIG_PATH=$library/pkgconfig
    read -ra flags <<<"$(pkg-config --cflags --libs tiermesh)"
    "$cc" -std=c11 -Wall -Wextra -Werror "$here/program.c" "${flags[@]}" -o "$scratch/consumer"
    "$cxx" -std=c++11 -Wall -Wextra -Werror "$here/program.cpp" "${flags[@]}" -o "$scratch/consumer_cpp"
    pkg-config --atleast-version=0.1 tiermesh
    ;;
find-package)
    cmake -S "$here" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx" >"$scratch/configure.log" || { cat "$scratch/configure.log"; exit 1; }
    cmake --build "$scratch/build" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
    cp "$scratch/build/consumer" "$scratch/build/consumer_cpp" "$scratch"
    if cmake -S "$here" -B "$scratch/other" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_PROJECT_INCLUDE="$here/newer.cmake" >/dev/null 2>&1; then
        echo "a version that does not exist was found"
        exit 1
    fi
    ;;
readme)
    # The program of the README, as it stands there.
    export PKG_CONFIG_PATH=$library/pkgconfig
    awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$here/../../README.md" >"$scratch/readme.c"
    read -ra flags <<<"$(pkg-config --cflags --libs tiermesh)"
    "$cc" -std=c17 -Wall -Wextra -Werror "$scratch/readme.c" "${flags[@]}" -o "$scratch/readme"
    "$cc" -std=c11 "$here/program.c" "${flags[@]}" -o "$scratch/consumer"
    expect "consumer: 42 on 1 node" "$scratch/consumer"
    expect "node 2 wrote 102" "$prefix/bin/dsmrun" -n 3 --timeout 20 -- "$scratch/readme"
    echo "consumer by $kind: ok"
    exit 0
    ;;
*)
    echo "unknown kind: $kind"
    exit 2
    ;;
esac

[ "$(readelf -d "$library/libtiermesh.so" | grep -oE 'libtiermesh\.so\.[0-9]+')" = libtiermesh.so.0 ]
expect ddr "$scratch/consumer_cpp"
expect "consumer: 42 on 1 node" "$scratch/consumer"
echo "consumer by $kind: ok"
