#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python3 with a large dictionary: small objects, and a collector that walks over them.
source "$(dirname "$0")/common.sh"
lower=(--zmem 64M --nvme "4G:$scratch")
python=$(PATH=/usr/bin need python3 python3)

cat >script.py <<'PYTHON'
import gc
import hashlib

def value(i):
    return {"id": i, "text": "%d." % (i * 2654435761 % 4294967296) * 40, "list": [i, i + 1, str(i * 3)]}

table = {}
for i in range(150_000):
    table["key-%d" % (i * 7919 % 150_000)] = value(i)
for i in range(0, 150_000, 5):
    del table["key-%d" % i]
for i in range(0, 150_000, 20):
    table["new-%d" % i] = value(i)
gc.collect()
digest = hashlib.sha256()
for key, entry in table.items():
    digest.update(("%s %d %s %s" % (key, entry["id"], entry["text"], entry["list"])).encode())
print(len(table), digest.hexdigest())
print(sum(table["key-%d" % i]["id"] for i in range(1, 150_000, 501) if i % 5))
PYTHON
natively "$python" ../script.py
managed "$python" ../script.py
same out
verdict
