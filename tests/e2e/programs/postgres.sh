#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# postgres as an ordinary user: a process for each connection, shared memory that stays the kernel's and must stay
# coherent, and sorts and hashes in private memory that do not fit the budget.
scratch_parent=/var/tmp # an ordinary user can go there
source "$(dirname "$0")/common.sh"

bin=$(find /usr/lib/postgresql/*/bin -maxdepth 0 2>/dev/null | sort -V | tail -n 1)
postgres=$(PATH=$bin:$PATH need postgres postgresql)
bin=$(dirname "$(realpath "$postgres")")
psql=$(PATH=$bin:$PATH need psql postgresql)
pgbench=$(PATH=$bin:$PATH need pgbench postgresql)
if [ "$(id -u)" -eq 0 ]; then
    id -u postgres >/dev/null 2>&1 || { say "there is no user postgres (package postgresql)" >&2; exit 77; }
    as_user=(setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$scratch")
    chown -R postgres: "$scratch"
fi

sql() { "${as_user[@]}" "$psql" -h "$scratch/$half" -d postgres -X -q -At -v ON_ERROR_STOP=1 "$@"; }

# What does not fit the budget: each line is a result that must not differ. The last tells the peak of this backend.
cat >queries.sql <<'SQL'
SET work_mem = '400MB';
SET hash_mem_multiplier = 1;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE big AS SELECT i, md5(i::text) AS a, repeat(md5((i * 7)::text), 4) AS b FROM generate_series(1, 300000) i;
ANALYZE big;
SELECT md5(string_agg(a, ',' ORDER BY b)) FROM big;
SELECT count(*), sum(n), max(l)
    FROM (SELECT substr(a, 1, 4) AS k, count(*) AS n, max(length(b)) AS l FROM big GROUP BY 1) g;
SELECT count(*), md5(string_agg(x.a, '' ORDER BY x.i)) FROM big x JOIN big y ON x.b = y.b AND x.i % 3 = 0;
CREATE INDEX big_b ON big(b);
SELECT i FROM big ORDER BY b LIMIT 5;
SQL
peak_query="SELECT (regexp_match(pg_read_file('/proc/self/status'), 'VmHWM:\s+(\d+)'))[1]"

# one HALF: sets $half_ms and $half_kib.
one() {
    local started
    half=$1
    started=$(milliseconds)
    serve "$half" "$postgres" -D "$scratch/data-$half" -k "$scratch/$half" -c listen_addresses= -c fsync=off \
        -c jit=off -c shared_buffers=24MB -c max_connections=30 -c autovacuum=off
    answers sql -c 'SELECT 1'
    (sql -f queries.sql && sql -c 'DROP TABLE big') >"$half/results" || fail "$half: the queries failed"
    half_kib=$(sql -f queries.sql -c "$peak_query" | tail -n 1)
    cd "$half"
    "${as_user[@]}" "$pgbench" -h "$scratch/$half" -i -s 4 -q postgres >bench 2>&1 || fail "pgbench -i: $(cat bench)"
    "${as_user[@]}" "$pgbench" -h "$scratch/$half" -n -c 6 -j 2 -t 300 --random-seed=5 postgres >bench 2>&1 ||
        fail "pgbench: $(cat bench)"
    cd ..
    sql -c "SELECT count(*) FROM pgbench_history" -c "SELECT 
        (SELECT sum(abalance) FROM pgbench_accounts) = sum(delta),
        (SELECT sum(bbalance) FROM pgbench_branches) = sum(delta),
        (SELECT sum(tbalance) FROM pgbench_tellers) = sum(delta) FROM pgbench_history" >"$half/balance"
    end_server INT || fail "$half: the server does not end in order"
    half_ms=$(($(milliseconds) - started))
}

prepare() {
    "$@" "${as_user[@]}" "$bin/initdb" -D "$scratch/data-$half" -A trust -E UTF8 --no-locale -N \
        >"$half/initdb" 2>&1 </dev/null || fail "$half: initdb: $(tail -n 5 "$half/initdb")"
}

half=native
prepare
one native
native_ms=$half_ms peak_kib=$half_kib
half=managed
as_user_kept=("${as_user[@]}")
launcher
as_user=()
prepare "${launcher[@]}"
as_user=("${as_user_kept[@]}")
one managed
managed_ms=$half_ms managed_kib=$half_kib
evicted
same results balance
printf '1800\nt|t|t\n' | cmp - managed/balance || fail "accounts do not add up: $(cat managed/balance)"
verdict
