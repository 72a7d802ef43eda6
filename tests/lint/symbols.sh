#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh HEADER LIBRARY: the library exports the header's functions, no more and no fewer, and the header says
# something about each: its name in a comment, a comment above its group, or one behind it.
set -euo pipefail
header=$1
library=$2
findings=0

finding() {
    echo "$*"
    findings=$((findings + 1))
}

declared=$(sed -e 's|/\*.*\*/||' "$header" | grep -oE '^[a-z].*\<dsm_[a-z_]+\(' |
    grep -oE 'dsm_[a-z_]+\($' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u)

for name in $(comm -23 <(echo "$declared") <(echo "$exported")); do
    finding "$name is declared in $(basename "$header") but not exported"
done
for name in $(comm -13 <(echo "$declared") <(echo "$exported")); do
    finding "$name is exported but not declared in $(basename "$header")"
done

documented=$(awk '
    function names(text) {
        while (match(text, /dsm_[a-z_]+/)) {
            print substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
        }
    }
    /^[[:space:]]*$/ { above = 0 }
    /\/\*/ && !/^\/\* ---/ { inside = 1; if ($0 ~ /^\/\*/) above = 1 }
    inside || (above && /\(/) { names($0) }
    /\*\// { inside = 0 }' "$header" | sort -u)
for name in $declared; do
    grep -qx "$name" <<<"$documented" || finding "$name has no comment in $(basename "$header")"
done

if [ "$findings" -gt 0 ] || [ -z "$declared" ]; then
    echo "symbols: $findings findings"
    exit 1
fi
echo "symbols: ok, $(wc -w <<<"$declared") functions"
