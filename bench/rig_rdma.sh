# SPDX-License-Identifier: Apache-2.0
# rig_rdma.sh ROUNDS: run by rig.sh in two guests with soft-RoCE. Each round measures what perftest reaches, in event
# mode, and a remote fault over each transport that the build has; it prints lines "round NAME MICROSECONDS" (or MiB/s).
rounds=$1
programs=/build/bench

# both NAME COLUMN PROGRAM ARGUMENT...: node 1 serves, node 2 calls and tells that column of the figures. Both start
# again when that fails: in event mode perftest sometimes waits for an event that it has had already, and on more than
# one processor a guest it always does.
both() {
    local name=$1 column=$2 turn done
    shift 2
    done=/job/done.$name.$round
    rig-barrier "$name.$round" 150
    for ((turn = 0; turn < 5; turn++)); do
        [ ! -e "$done" ] || return 0
        if [ "$NODE" = 1 ]; then
            timeout 20 "$@" >/tmp/log 2>&1 || true
            sleep 0.5
        elif sleep 1.5 && timeout 20 "$@" 10.9.0.1 >/tmp/log 2>&1; then
            : >"$done"
            awk -v name="$name" -v column="$column" '/^ [0-9]/ { print "round", name, $column }' /tmp/log
        fi
    done
    [ -e "$done" ] || { echo "$name failed $turn times:"; cat /tmp/log; exit 1; }
}

# remote_fault TRANSPORT: node 1 faults on pages of node 2.
remote_fault() {
    rig-barrier "fault.$1.$round"
    if [ "$NODE" = 1 ]; then
        /build/dsmrun -H node1,node2 --transport "$1" --timeout 60 -- "$programs/bench_rig_fault" >/tmp/log 2>&1 ||
            { cat /tmp/log; exit 1; }
        awk -v name="remote-fault-$1" '$1 == "fault" { print "round", name, $2 }' /tmp/log
    fi
    rig-barrier "faulted.$1.$round" 80
}

transports=tcp
if /build/dsmrun --transport verbs -n 1 --preload off -- true >/dev/null 2>&1; then
    transports+=" verbs"
fi
for ((round = 1; round <= rounds; round++)); do
    both read-lat 5 ib_read_lat -d rxe0 -x 1 -s 4096 -n 300 -F -e
    both send-lat 5 ib_send_lat -d rxe0 -x 1 -s 64 -n 300 -F -e
    both atomic-lat 5 ib_atomic_lat -d rxe0 -x 1 -n 300 -F -e
    both read-bw 4 ib_read_bw -d rxe0 -x 1 -s 1048576 -n 20 -F -e
    for transport in $transports; do
        remote_fault "$transport"
    done
    if [ "$NODE" = 1 ]; then
        "$programs/bench_local_fault" --quick --directory /tmp --json /tmp/local.json >/dev/null 2>&1 || true
        sed -nE 's/.*"local-fault-private".*"reference":([0-9.]+).*/round bare-fault \1/p' /tmp/local.json | tail -n 1
    fi
done
rig-barrier end 120
