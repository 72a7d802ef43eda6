# SPDX-License-Identifier: Apache-2.0
# rig_rdma.sh ROUNDS [--quick]: run by rig.sh in two guests with soft-RoCE. Each round measures what perftest reaches,
# in event mode, and over each transport that the build has a remote fault and the calls of rig_calls.c; it prints lines
# "round NAME MICROSECONDS" (or MiB/s).
rounds=$1 quick=${2-}
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

# job NAME TRANSPORT PROGRAM ARGUMENT...: on both nodes over that transport; each line "WHAT FIGURE" is told as
# WHAT-TRANSPORT.
job() {
    local name=$1 transport=$2
    shift 2
    rig-barrier "$name.$transport.$round"
    if [ "$NODE" = 1 ]; then
        /build/dsmrun -H node1,node2 --transport "$transport" --timeout 60 -- "$@" >/tmp/log 2>&1 ||
            { cat /tmp/log; exit 1; }
        awk -v transport="$transport" '/^[a-z-]+ [0-9.]+$/ { print "round", $1 "-" transport, $2 }' /tmp/log
    fi
    rig-barrier "$name.$transport.$round.done" 80
}

# The smallest message of the fabric, without a job.
message() {
    rig-barrier "message.$round"
    timeout 30 "$programs/bench_rig_message" $((NODE - 1)) "10.9.0.$NODE" /job >/tmp/log 2>&1 ||
        { cat /tmp/log; exit 1; }
    awk '$1 == "message" { print "round message-verbs", $2 }' /tmp/log
    rig-barrier "message.$round.done"
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
        job fault "$transport" "$programs/bench_rig_fault" ${quick:+32}
        job calls "$transport" "$programs/bench_rig_calls" $quick
    done
    [ "$transports" = tcp ] || message
    if [ "$NODE" = 1 ]; then
        "$programs/bench_local_fault" --quick --directory /tmp --json /tmp/local.json >/dev/null 2>&1 || true
        sed -nE 's/.*"local-fault-private".*"reference":([0-9.]+).*/round bare-fault \1/p' /tmp/local.json | tail -n 1
    fi
done
rig-barrier end 120
