#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sort.sh [MIB]: GNU sort, whose buffers come from malloc, on generated text.
source "$(dirname "$0")/common.sh"
lower=(--cxl 256M --nvme "4G:$scratch")
mib=${1:-300}
sort=$(need sort coreutils)

# Records of some 1,000 bytes that begin with a random key; the text behind it starts anywhere in a paragraph.
generate() {
    awk -v bytes=$((mib << 20)) 'BEGIN {
        srand(7)
        while (length(text) < 4000)
            text = text sprintf("%c%s", 97 + int(rand() * 26), rand() < 0.2 ? " " : "")
        for (written = 0; written < bytes; written += length(line) + 1) {
            line = sprintf("%09d %s", rand() * 1e9, substr(text, 1 + int(rand() * 2000), 500 + int(rand() * 1000)))
            print line
        }
    }'
}
generate >text
[ "$(stat -c %s text)" -ge $((mib << 20)) ] || fail "the text is too short"

# All of it in one buffer, as on a machine that has the memory.
command=("$sort" -S "$((mib * 2))M" --parallel=2 ../text)
natively "${command[@]}"
managed "${command[@]}"
same out
sort -c managed/out || fail "not sorted"
verdict
