#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# memtester on memory that it may not lock: with locked memory nothing could be evicted.
source "$(dirname "$0")/common.sh"
memtester=$(PATH=$PATH:/usr/sbin need memtester memtester)

unlocked=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=0)
[ "$(id -u)" -eq 0 ] || unlocked=(prlimit --memlock=0)
# Stuck addresses, random values, and the walking bits: enough to see any page that comes back wrong.
export MEMTESTER_TEST_MASK=0x0d
natively "${unlocked[@]}" "$memtester" 96M 1
managed "${unlocked[@]}" "$memtester" 96M 1
grep -q 'unlocked' managed/out managed/err || fail "the memory was locked"
grep -q '^Done' managed/out || fail "memtester did not finish: $(cat managed/out)"
! grep -q FAILURE managed/out managed/err || fail "memtester found a failure: $(cat managed/out managed/err)"
verdict
