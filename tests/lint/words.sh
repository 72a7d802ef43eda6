#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unfinished work names its issue, every source has its licence line, and nothing names a place on some machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

# Spelled in two halves, so that this file is not its own finding.
unfinished='\<(TO''DO|FIX''ME|X''XX)\>'
places='(^|[^A-Za-z0-9_.}])/(wo''rk|ho''me|ro''ot|fa''rm)/|/tmp/bui''ld|deb\.deb''ian\.org|security\.deb''ian\.org'

# A search that finds nothing is no error.
look() { xargs -r grep -nHE "$1" || true; }

while read -r told; do
    finding "$told"
done < <(
    sources c h sh cmake py md pml | look "$unfinished" |
        sed -E "/$unfinished\(#[0-9]+\)/d; s/\$/   <- which issue?/"
    { sources c h sh cmake py md pml json && find Makefile .ci/run 2>/dev/null || true; } | look "$places" |
        sed 's/$/   <- a place on one machine/'
    { sources c h sh cmake py pml && find CMakeLists.txt 2>/dev/null || true; } | xargs -r awk '
        FNR == 1 { if (file && !found) print file ": no SPDX line"; file = FILENAME; found = 0 }
        FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { found = 1 }
        END { if (file && !found) print file ": no SPDX line" }'
)

finish words
