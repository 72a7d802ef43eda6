#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom: siblings never include each other, everyone may include base/, only runtime/ sees all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

# Folders that a folder may include besides itself; "dsm" is <tiermesh/dsm.h>.
allowed() {
    case $1 in
    include) echo "" ;;
    base) echo "base" ;;
    mmu | tiers | fabric | coherence | cluster | prefetch) echo "base" ;;
    runtime) echo "base mmu tiers fabric coherence cluster prefetch dsm" ;;
    shim | demo) echo "dsm" ;;
    tools) echo "base runtime dsm" ;;
    *) echo "" ;;
    esac
}

while IFS=: read -r file line text; do
    folder=${file%%/*}
    path=$(sed -E 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]*)[>"].*/\1/' <<<"$text")
    case $text in
    *'<tiermesh/dsm.h>'*) target=dsm ;;
    *'<'*) continue ;;
    *)
        if [ "$path" = "${path#*/}" ]; then
            finding "$file:$line: \"$path\" is not written from the root"
            continue
        fi
        target=${path%%/*}
        [ "$path" = tiermesh/dsm.h ] && target=dsm
        ;;
    esac
    case " $(allowed "$folder") $folder " in
    *" $target "*) ;;
    *) finding "$file:$line: $folder/ may not include $path" ;;
    esac
done < <(sources c h | grep -E '^(include|base|mmu|tiers|fabric|coherence|cluster|prefetch|runtime|shim|tools|demo)/' |
    xargs -r grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' || true)

finish layers
