#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# redis-server: an allocator of its own, and a child that saves the parent's memory as it was at the fork while the
# parent goes on changing it.
source "$(dirname "$0")/common.sh"
redis=$(need redis-server redis-server)
cli=$(need redis-cli redis-tools)
benchmark=$(need redis-benchmark redis-tools)
python=$(PATH=/usr/bin need python3 python3)

ask() { "$cli" -s redis.sock "$@"; }
client() { "$python" "$here/redis_client.py" redis.sock "$@"; }

pong() { [ "$(ask ping)" = PONG ]; } # while it loads, it says so instead

# start HALF: its server, empty or with the dump.rdb that lies in its directory.
start() {
    rm -f redis.sock
    serve "$1" "$redis" --port 0 --unixsocket ../redis.sock --save '' --appendonly no --enable-debug-command yes \
        --activerehashing no --daemonize no
    answers pong
}

# Milliseconds from $1, to be called when the work is done.
since() { echo $(($(milliseconds) - $1)); }

# saved: the BGSAVE that was asked for is over and went well.
saved() {
    while ask info persistence | grep -q 'rdb_bgsave_in_progress:1'; do
        sleep 0.1
    done
    ask info persistence | grep -q 'rdb_last_bgsave_status:ok' || fail "BGSAVE failed: $(tail -n 20 managed/out)"
}

started=$(milliseconds)
start native
client fill
ask debug digest >native/digest
peak_kib=$(peak_of "$(ask info server | tr -d '\r' | sed -n 's/^process_id://p')")
native_ms=$(since "$started")
end_server || fail "natively it does not end in order"

started=$(milliseconds)
start managed
client fill
ask debug digest >managed/digest
same digest
managed_ms=$(since "$started")

# While a writer changes every key in turn, and others use a second database, the memory is saved twice.
"$python" "$here/redis_client.py" redis.sock write >writer 2>&1 &
writer=$!
"$benchmark" -s redis.sock --dbnum 1 -c 8 -n 20000 -r 5000 -d 2000 -t set,get,lpush,lpop,sadd,zadd -q >bench 2>&1 &
bench=$!
for save in 1 2; do
    sleep 0.5
    ask bgsave | grep -q 'started' || fail "BGSAVE was refused"
    saved
    mv managed/dump.rdb "dump-$save.rdb"
done
kill "$writer" 2>/dev/null || true
wait "$writer" || fail "the writer failed: $(cat writer)"
wait "$bench" || fail "redis-benchmark failed: $(cat bench)"

# The whole state goes out and comes back in, in this process and in another.
ask debug digest >before
[ "$(ask debug reload)" = OK ] || fail "DEBUG RELOAD"
ask debug digest >after
cmp before after || fail "DEBUG RELOAD changed the digest"
ask save >/dev/null
managed_kib=$(peak_of "$(ask info server | tr -d '\r' | sed -n 's/^process_id://p')")
end_server || fail "under the library it does not end in order"
evicted

mv managed/dump.rdb native/dump.rdb
start native
ask debug digest >after
cmp before after || fail "natively loaded, the saved state has another digest"
end_server
for save in 1 2; do
    mv "dump-$save.rdb" native/dump.rdb
    start native
    client consistent || fail "dump $save is no moment of the parent's memory"
    end_server
done
verdict
