#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# xz: an encoder whose tables are looked up at random, and threads; then back again.
source "$(dirname "$0")/common.sh"
lower=(--cxl 256M --nvme "4G:$scratch")
xz=$(need xz xz-utils)

awk 'BEGIN {
    srand(5)
    for (i = 0; i < 400; i++) word[i] = sprintf("%c%x", 97 + int(rand() * 26), rand() * 1e6)
    for (written = 0; written < 3e6; written += length(line) + 1) {
        line = ""
        for (i = 0; i < 12; i++) line = line word[int(rand() * rand() * 400)] " "
        print line
    }
}' >text
export XZ_DEFAULTS=
command=(sh -c '"$1" -T2 --block-size=2MiB -2 -c ../text >text.xz && "$1" -T1 -dc text.xz | sha256sum' sh "$xz")
natively "${command[@]}"
managed "${command[@]}"
same out text.xz
grep -q "$(sha256sum <text)" managed/out || fail "the text did not come back"
verdict
