#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rig-barrier NAME [SECONDS]: waits until every guest has come to NAME.
# No process is started while it waits: on one emulated processor that would take a tenth of what is measured beside it.
: >"/job/barrier.$1.$NODE"
exec {quiet}<> <(:)
for ((turn = 0; turn < ${2:-60} * 10; turn++)); do
    arrived=(/job/barrier."$1".[0-9]*)
    [ "${#arrived[@]}" -lt "$NODES" ] || exit 0
    read -rt 0.1 -u "$quiet" || true
done
echo "rig-barrier $1: ${#arrived[@]} of $NODES guests came within ${2:-60} s" >&2
exit 1
