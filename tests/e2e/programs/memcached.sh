#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# memcached: slabs, several threads, and a client that knows what every answer must be.
source "$(dirname "$0")/common.sh"
lower=(--zmem 64M --nvme "4G:$scratch")
memcached=$(need memcached memcached)
python=$(PATH=/usr/bin need python3 python3)

# half HALF: sets $half_ms.
half() {
    local started
    started=$(milliseconds)
    serve "$1" "$memcached" -s ../memcached.sock -m 1024 -t 4 "${user[@]}"
    answers test -S memcached.sock
    "$python" "$here/memcached_client.py" memcached.sock >"$1/digest" || fail "$1: $(tail -n 3 "$1/digest")"
    half_ms=$(($(milliseconds) - started))
}
user=()
[ "$(id -u)" -ne 0 ] || user=(-u root)

# server_pid: as the server itself tells it.
server_pid() {
    "$python" "$here/memcached_client.py" memcached.sock pid
}

half native
native_ms=$half_ms
peak_kib=$(peak_of "$(server_pid)")
end_server || fail "natively it does not end in order"
rm -f memcached.sock
half managed
managed_ms=$half_ms
managed_kib=$(peak_of "$(server_pid)")
end_server || fail "under the library it does not end in order"
evicted
same digest
verdict
