#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# programs.sh: the unchanged programs that the suites preload and policy run, to be sourced. The caller sets
#   scratch   a folder for their files
#   programs  the folder of the programs of bench/; rivals: bench_rivals of them
#   sort_lines, sqlite_records, numpy_count, dict_keys, redis_keys   how much they do
# and ends what is in `pids` when it ends.
pids=()

# A command runs in the background and is waited for, so that a signal reaches this script at once.
run() {
    local status=0
    "$@" &
    pids+=("$!")
    wait "$!" || status=$?
    pids=("${pids[@]:0:${#pids[@]}-1}")
    return "$status"
}

# peak COMMAND...: MiB, without limit.
peak() {
    run "$rivals" --peak "$@" >"$scratch/peak"
    cat "$scratch/peak"
}

# What is still running is ended and waited for.
pids_end() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    pids=()
}

# faults SUMMARY: of all processes that dsmrun has told of there: "HARD SOFT NEW".
faults() {
    awk '/^  faults/ {
            line = $0
            sub(/^ *faults +/, "", line)
            source = line; sub(/ +[0-9].*/, "", source)
            count = line; sub(/^[a-z ]*/, "", count); sub(/ .*/, "", count)
            sum[source == "ddr" ? "soft" : source == "new pages" ? "new" : "hard"] += count
        }
        END { print sum["hard"] + 0, sum["soft"] + 0, sum["new"] + 0 }' "$1"
}

# ---- programs that run from start to end -----------------------------------------------------------------------------

# Sets command.
sort_command() {
    # 100 bytes a line.
    [ -e "$scratch/text" ] || awk -v lines="$sort_lines" 'BEGIN {
        srand(7)
        for (i = 0; i < lines; i++)
            printf "%010d %010d %078d\n", rand() * 1e10, rand() * 1e10, i
    }' >"$scratch/text"
    command=(env LC_ALL=C sort --buffer-size=4G --parallel=2 "$scratch/text")
}

sqlite_command() {
    local records=$sqlite_records
    cat >"$scratch/sql" <<SQL
CREATE TABLE record(id INTEGER PRIMARY KEY, key INTEGER, text TEXT);
INSERT INTO record WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $records)
    SELECT i, (i * 7919 + 13) % 1000003, printf('%064d the text of record %d', i * 31, i) FROM n;
CREATE INDEX by_key ON record(key);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $records / 10)
    SELECT count(*), sum(length(text)), sum(id) FROM n JOIN record ON record.key = (n.i * 104729 + 7) % 1000003;
SELECT key % 16, count(*), max(text) FROM record GROUP BY key % 16;
SQL
    command=(sqlite3 :memory: ".read $scratch/sql")
}

numpy_command() {
    cat >"$scratch/arrays.py" <<'PYTHON'
import sys
import numpy

count = int(sys.argv[1])
generator = numpy.random.default_rng(7)
a = generator.random(count)
b = a * 2 + 1
for _ in range(3):
    a += numpy.sqrt(b)
    b *= 0.5
order = generator.permutation(count // 64)
blocks = a.reshape(-1, 64)
print(float(a.sum()), float(b.sum()), float(blocks[order, 0].cumsum()[-1]))
a.sort()
print(float(a[0]), float(a[count // 2]), float(a[-1]))
PYTHON
    command=(/usr/bin/python3 "$scratch/arrays.py" "$numpy_count")
}

dict_command() {
    cat >"$scratch/dict.py" <<'PYTHON'
import sys

count = int(sys.argv[1])
state = 7


def draw():
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
    return (state >> 33) / (1 << 31)


table = {i * 2654435761 % (1 << 40): ("value of", i, float(i)) for i in range(count)}
names = list(table)
total = 0.0
for _ in range(count):
    # Skewed: the key's rank is exponential in a uniform number.
    total += table[names[int(count ** draw()) - 1]][2]
print(total, sum(value[1] for value in table.values()))
PYTHON
    command=(/usr/bin/python3 "$scratch/dict.py" "$dict_keys")
}

# ---- redis -----------------------------------------------------------------------------------------------------------

# server NAME COMMAND...: redis on the socket $scratch/NAME, behind COMMAND.
server() {
    local socket=$scratch/$1
    shift
    "$@" redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$scratch" >"$socket.log" 2>&1 &
    pids+=("$!")
    for _ in $(seq 200); do
        ! redis-cli -s "$socket" ping 2>/dev/null | grep -q PONG || return 0
        sleep 0.1
    done
    tail -n 5 "$socket.log" | sed 's/^/    /'
    return 1
}

# The servers of this row end; what else runs stays.
servers_end() {
    local name
    for name in "$@"; do
        redis-cli -s "$scratch/$name" shutdown nosave >/dev/null 2>&1 || true
    done
    pids_end
}

# Sets top: MiB without limit.
redis_peak() {
    server peak env && echo | run "$programs/bench_redis_load" "$scratch/peak" "$redis_keys" 1024 16 >/dev/null
    redis-cli -s "$scratch/peak" info memory | sed -n 's/^used_memory_rss:\([0-9]*\).*/\1/p' >"$scratch/rss"
    servers_end peak
    top=$(($(cat "$scratch/rss") >> 20))
}
