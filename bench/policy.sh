#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# policy.sh BUILD_DIRECTORY OUTPUT.jsonl: the replacement policies. First real programs in the real pager
# (policy_programs.sh; ROWS=traces leaves them out), then page traces, at 10, 25 and 50 percent of each
# trace's footprint, with all touches seen and as the pager sees them (names that end in -30: limbo of 30 % at most).
# TRACES=DIR names a folder of *.pt or *.pt.zst; without it small synthetic ones are written and used. Prints misses in
# percent of the touches and (relative to Belady's policy), geometric means, and each cell where `arms` misses more than
# 1.05 times the best of LRU, S3-FIFO and LIRS plus 0.05 point.
set -euo pipefail

bench=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
build=$(realpath "$1") output=$(realpath -m "$2")
replay=$build/bench/tiermesh-replay
traces=${TRACES:-}
policies=${POLICIES:-fifo,lru,clock,lru-2,arc,s3-fifo,lirs}

if [ "${ROWS:-}" != traces ]; then
    rm -f "${output%.jsonl}-programs.jsonl"
    "$bench/policy_programs.sh" "$build" "${output%.jsonl}-programs.jsonl"
fi
if [ -z "$traces" ]; then
    traces=$(dirname "$output")/traces
    mkdir -p "$traces"
    "$build/bench/bench_synthetic_traces" "$traces"
fi
shopt -s nullglob
files=("$traces"/*.pt "$traces"/*.pt.zst)
if [ ${#files[@]} -eq 0 ]; then
    echo "policy: there is no *.pt or *.pt.zst in $traces" >&2
    exit 2
fi

: >"$output"
for percent in 10 25 50; do
    for file in "${files[@]}"; do
        # A trace too small for a policy is left out with the sentence that says so.
        "$replay" "$file" --frames "$percent%" --policy "$policies,arms" --json >>"$output" || continue
        "$replay" "$file" --frames "$percent%" --policy segmented-fifo,arms --limbo 30% --json >>"$output"
    done
done

# The fields of a line of JSON that are needed, by their places between colons and commas.
sed -E 's/[{}"]//g; s/, /: /g' "$output" | awk -F': ' '{
        sub(/.*\//, "", $2); sub(/\.pt(\.zst)?$/, "", $2)
        print $2, $4, $6, $10, $16, $18, $20, $24
    }' |
    awk -v traces=${#files[@]} '
    function flush_cell(    best) {
        if (trace == "") return
        best = miss["lru"] < miss["lirs"] ? miss["lru"] : miss["lirs"]
        if (miss["s3-fifo"] < best) best = miss["s3-fifo"]
        if (miss["arms"] > 1.05 * best + 0.05)
            regrets = regrets sprintf("regret: %s with %s frames: %.3f %%, the best of three %.3f %%\n", trace, frames,
                                      miss["arms"], best)
    }
    {
        name = $2 ($4 < 1 ? "-30" : "")
        if (name in miss && ($1 != trace || $3 != frames)) {
            flush_cell()
            delete miss
            printf "\n"
            if (++cells % traces == 0) means()
        }
        if ($1 != trace || $3 != frames) printf "%-14s %7d ", $1, $3
        trace = $1; frames = $3; miss[name] = $5
        printf " %s %.3f (%s)", name, $5, $6
        if (name ~ /-30/) printf " soft %s", $7
        if ($6 > 0) { sum[name] += log($6); count[name]++ }
        soft[name] += $7
        if (!(name in order)) { order[name] = ++names; by[names] = name }
    }
    function means(    i) {
        printf "geometric mean of misses / Belady, %d traces:", traces
        for (i = 1; i <= names; i++)
            if (count[by[i]]) printf "  %s %.3f", by[i], exp(sum[by[i]] / count[by[i]])
        printf "  (soft faults a miss: arms-30 %.2f)\n\n", soft["arms-30"] / traces
        split("", sum); split("", count); split("", soft)
    }
    END { flush_cell(); printf "\n"; means(); printf "%s", regrets == "" ? "no regret in any cell\n" : regrets }'
