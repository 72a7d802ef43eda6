#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pure parts call nothing of the world: pure.sh ARCHIVE[:OBJECT...]...
# What an archive needs and does not define itself must be in the list below: no clock, thread, file, memory, chance.
# It sees what the compiler emits: a call that was optimized away is not reported.
set -euo pipefail

allowed=" memcpy memmove memset memcmp assert_failed _GLOBAL_OFFSET_TABLE_ __stack_chk_fail "
allowed+="strlen strnlen strcmp strcspn "
# What gcc emits for _FORTIFY_SOURCE, which some distributions switch on.
allowed+="__memcpy_chk __memmove_chk __memset_chk __chk_fail "
findings=0
looked=0

for argument in "$@"; do
    archive=${argument%%:*}
    members=${argument#"$archive"}
    listing=$(nm -A "$archive" 2>/dev/null || true)
    if [ -n "$members" ]; then
        pattern=$(tr ':' '\n' <<<"${members#:}" | sed 's/\./\\./g' | paste -sd'|')
        listing=$(grep -E "(^|:)($pattern):" <<<"$listing" || true)
    fi
    if [ -z "$listing" ]; then
        echo "$argument: no such object"
        findings=$((findings + 1))
        continue
    fi
    looked=$((looked + 1))
    defined=$(awk '$(NF-1) != "U" {print $NF}' <<<"$listing" | sort -u)
    while read -r place name; do
        [ -n "$name" ] || continue
        case $allowed in *" $name "*) continue ;; esac
        if ! grep -qxF "$name" <<<"$defined"; then
            echo "${place%:}: calls $name, which is not pure"
            findings=$((findings + 1))
        fi
    done < <(awk '$(NF-1) == "U" {print $1, $NF}' <<<"$listing" | sort -u)
done

if [ "$findings" -gt 0 ] || [ "$looked" -eq 0 ]; then
    echo "pure: $findings findings in $looked archives"
    exit 1
fi
echo "pure: ok"
