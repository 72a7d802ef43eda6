#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pool.sh PROGRAM CASE...: cases of a program of several nodes whose hosts share memory, a file in place of it. Each job
# finds in it what the one before left.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
program=$1
shift
truncate -s 64M "$scratch/pool"
"$program" --set transport=pool --set pool="$scratch/pool" "$@"
