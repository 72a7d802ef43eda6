#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bounds on size: a function 70 lines, a file 800 lines, a line 120 columns.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

while read -r told; do
    finding "$told"
done < <(
    # The layout puts the braces of a function, and only those, alone in the first column.
    sources c h | xargs -r awk '
        FNR == 1 { start = 0 }
        /^\{[[:space:]]*$/ { start = FNR }
        /^\}[[:space:]]*$/ && start {
            if (FNR - start + 1 > 70) printf "%s:%d: function of %d lines\n", FILENAME, start, FNR - start + 1
            start = 0
        }'
    sources c h sh cmake py | xargs -r awk '
        FNR == 1 { if (last > 800) printf "%s: file of %d lines\n", file, last }
        { file = FILENAME; last = FNR }
        END { if (last > 800) printf "%s: file of %d lines\n", file, last }'
    sources c h sh cmake py | { LC_ALL=C.UTF-8 xargs -r grep -nHE '.{121,}' || true; } |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: line over 120 columns/'
)

finish length
