#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sqlite3, which makes millions of small allocations: a table and its indexes are built in the page cache, asked and
# changed; then the file is checked.
source "$(dirname "$0")/common.sh"
lower=(--zmem 48M --nvme "4G:$scratch")
sqlite=$(need sqlite3 sqlite3)

# The page cache holds all of it, so that the peak is the data.
cat >script.sql <<'SQL'
PRAGMA cache_size=-400000;
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
PRAGMA temp_store=MEMORY;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind INTEGER NOT NULL, price REAL, note TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250000)
INSERT INTO item SELECT i, printf('%08x-%d', (i * 2654435761) % 4294967296, i), (i * 7919) % 500,
    ((i * 104729) % 100000) / 100.0, printf('%.*c%d', 60 + (i * 31) % 240, 'n', i) FROM n;
CREATE INDEX item_kind ON item(kind, price);
CREATE UNIQUE INDEX item_name ON item(name);
COMMIT;
SELECT count(*), sum(price), max(name) FROM item;
SELECT kind, count(*), round(avg(price), 4) FROM item GROUP BY kind ORDER BY 3 DESC LIMIT 20;
SELECT name, length(note) FROM item WHERE kind = 77 ORDER BY price LIMIT 20;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
SELECT sum(length(note)) FROM n JOIN item ON name = printf('%08x-%d', (i * 101 * 2654435761) % 4294967296, i * 101);
BEGIN;
UPDATE item SET note = 'changed ' || id WHERE kind < 100;
DELETE FROM item WHERE kind >= 400;
COMMIT;
SELECT count(*), sum(length(note)) FROM item;
PRAGMA integrity_check;
SQL

command=("$sqlite" -batch -bail -init ../script.sql data.sqlite .exit)
natively "${command[@]}"
managed "${command[@]}"
same out data.sqlite
tail -n 1 managed/out | grep -qx ok || fail "integrity_check: $(tail -n 1 managed/out)"
verdict
