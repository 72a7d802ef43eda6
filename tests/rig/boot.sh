#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh BUILD NAME [OPTION...]: boots guests with these options of bench/qemu/boot.sh and runs guest/NAME.sh in each.
# What they printed stays in BUILD/rig/NAME.
set -euo pipefail
build=$1 name=$2
shift 2
source=${TIERMESH_SOURCE:?}
if ! "$source/bench/qemu/build.sh" --check; then
    exit 77
fi
exec "$source/bench/qemu/boot.sh" --build "$build" --keep "$build/rig/$name" "$@" -- \
    bash -eu "/source/tests/rig/guest/$name.sh"
