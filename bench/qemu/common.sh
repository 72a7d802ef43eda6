# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of the rig: where things lie, and how they are said.

rig=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_tree=$(cd "$rig/../.." && pwd)
out=${RIG_OUT:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tiermesh-rig}

say() { printf 'rig: %s\n' "$*" >&2; }

die() {
    local status=$1
    shift
    say "$@"
    exit "$status"
}

# rig_program_as NAME PATH ARGUMENTS...: becomes a program of the unpacked host tree, with that tree's own loader and
# libraries, called NAME.
rig_program_as() {
    local host=$out/host name=$1 program=$2
    shift 2
    QEMU_MODULE_DIR=$host/usr/lib/x86_64-linux-gnu/qemu exec "$host/lib64/ld-linux-x86-64.so.2" \
        --library-path "$host/usr/lib/x86_64-linux-gnu" --argv0 "$name" "$host$program" "$@"
}

rig_program() { rig_program_as "$1" "$@"; }

# What the rig must have been built from: another answer than the stamp's means that it is to be built again.
rig_recipe() { cat "$rig/packages.sh" "$rig/build.sh" "$rig/guest/init.sh" | sha256sum | cut -d ' ' -f 1; }

# Why the rig cannot be used as it is; nothing when it can.
rig_lacks() {
    if [ ! -e "$out/stamp" ]; then
        echo "there is no rig in $out; make rig builds it"
    elif [ "$(cat "$out/stamp")" != "$(rig_recipe)" ]; then
        echo "the rig in $out was built by other scripts; make rig builds it again"
    elif [ ! -x "$out/host/usr/bin/qemu-system-x86_64" ]; then
        echo "the rig in $out has no QEMU; remove that folder and make rig builds it again"
    fi
}
