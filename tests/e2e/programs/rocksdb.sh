#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# db_bench of rocksdb: write buffers and a block cache that are larger than the budget, several threads, every block
# and every key verified.
source "$(dirname "$0")/common.sh"
lower=(--cxl 256M --nvme "4G:$scratch")
db_bench=$(need db_bench rocksdb-tools)

run=("$db_bench" --benchmarks=fillrandom,readrandom,compact,verifychecksum,readseq,readrandom --num=60000 --reads=30000
    --value_size=1500 --key_size=24 --threads=1 --seed=17 --compression_type=none --write_buffer_size=67108864
    --max_write_buffer_number=4 --cache_size=100000000 --verify_checksum=true --db=db --wal_dir=db --histogram=false)
# What was found, without how fast.
results() { grep -oE '^[a-z]+ |[0-9]+ of [0-9]+ found|Corruption.*' "$1/out" >"$1/results" || true; }
natively "${run[@]}"
managed "${run[@]}"
results native
results managed
same results
grep -q ' found' managed/results || fail "nothing was read: $(cat managed/results)"
! grep -qi 'corruption' managed/out managed/err || fail "rocksdb found corruption"
verdict
