#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each numbered rule of docs/PROTOCOL.md is cited by code and by a test, and no cited rule is unknown.
# A rule is stated where a line of PROTOCOL.md begins with its letter and number: "P7.", "- P7.", "**P7**", "### P7".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"

rules=$(grep -oE '^[-#*|[:space:]]*[A-Z][0-9]+\>' docs/PROTOCOL.md 2>/dev/null |
    grep -oE '[A-Z][0-9]+' | sort -u || true)
letters=$(grep -oE '^[A-Z]' <<<"$rules" | sort -u | tr -d '\n' || true)
if [ -z "$rules" ]; then
    finding "docs/PROTOCOL.md: states no numbered rule"
fi

# cited FOLDER...: the rules that sources in these folders name.
cited() {
    local pattern
    pattern=$(IFS='|'; echo "$*")
    sources c h pml cmake txt | grep -E "^($pattern)/" | xargs -r grep -ohwE "[${letters:-P}][0-9]+" | sort -u
}
code=$(cited coherence cluster fabric runtime mmu tiers base || true)
tests=$(cited tests || true)

for rule in $rules; do
    grep -qx "$rule" <<<"$code" || finding "docs/PROTOCOL.md: $rule is not cited by code"
    grep -qx "$rule" <<<"$tests" || finding "docs/PROTOCOL.md: $rule is not cited by a test"
done
for rule in $(cited coherence || true); do
    grep -qx "$rule" <<<"$rules" || finding "coherence: $rule is cited but not stated in docs/PROTOCOL.md"
done

finish rules
