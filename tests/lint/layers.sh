#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom: siblings never include each other, everyone may include base/, only runtime/ sees all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

# Folders that a folder may include besides itself; "dsm" is <tiermesh/dsm.h>.
declare -A allowed=(
    [include]="" [base]=""
    [mmu]="base" [tiers]="base" [fabric]="base" [coherence]="base" [cluster]="base" [prefetch]="base"
    [runtime]="base mmu tiers fabric coherence cluster prefetch dsm"
    [shim]="dsm hooks" [demo]="dsm"
    [tools]="base runtime dsm"
)

while IFS=: read -r file line text; do
    folder=${file%%/*}
    [[ $text =~ [\<\"]([^\>\"]*)[\>\"] ]] || continue
    path=${BASH_REMATCH[1]}
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
        [ "$folder:$path" = shim:runtime/hooks.h ] && target=hooks
        ;;
    esac
    case " ${allowed[$folder]} $folder " in
    *" $target "*) ;;
    *) finding "$file:$line: $folder/ may not include $path" ;;
    esac
done < <(sources c h | grep -E '^(include|base|mmu|tiers|fabric|coherence|cluster|prefetch|runtime|shim|tools|demo)/' |
    xargs -r grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' || true)

finish layers
