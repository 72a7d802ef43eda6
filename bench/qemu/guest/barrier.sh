#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rig-barrier NAME [SECONDS]: waits until every guest has come to NAME.
: >"/job/barrier.$1.$NODE"
for ((turn = 0; turn < ${2:-60} * 10; turn++)); do
    arrived=(/job/barrier."$1".[0-9]*)
    [ "${#arrived[@]}" -lt "$NODES" ] || exit 0
    sleep 0.1
done
echo "rig-barrier $1: ${#arrived[@]} of $NODES guests came within ${2:-60} s" >&2
exit 1
