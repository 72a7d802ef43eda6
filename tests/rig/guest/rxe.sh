# SPDX-License-Identifier: Apache-2.0
# RDMA between two guests: the device is there and active, and connections, messages, one-sided reads and atomics work,
# by programs that are not ours.
ibv_devinfo -d rxe0 | grep -q 'PORT_ACTIVE' || { echo "rxe0 is not active"; ibv_devinfo; exit 1; }
ibv_devinfo -d rxe0 -v | grep -q 'atomic_cap:.*ATOMIC_HCA' || { echo "rxe0 has no atomics"; exit 1; }

# both NAME PROGRAM ARGUMENT...: node 1 serves and node 2 calls `address`, again when it was too early. The word ROLE
# stands for the option that makes a server or a client of the program.
both() {
    local name=$1 status=1 turn
    shift
    rig-barrier "$name"
    if [ "$NODE" = 1 ]; then
        status=0
        timeout 40 "${@/ROLE/${server:-}}" >"/tmp/$name" 2>&1 || status=$?
    fi
    for ((turn = 0; NODE == 2 && status != 0 && turn < 5; turn++)); do
        sleep 1
        status=0
        timeout 40 "${@/ROLE/${client:-}}" $address >"/tmp/$name" 2>&1 || status=$?
    done
    [ "$status" = 0 ] || { echo "$name: status $status"; cat "/tmp/$name"; exit 1; }
}
address=10.9.0.1
both send ib_send_lat -d rxe0 -x 1 -s 64 -n 200 -F -e
both read ib_read_lat -d rxe0 -x 1 -s 4096 -n 200 -F
both atomic ib_atomic_lat -d rxe0 -x 1 -n 200 -F
address='' server=-s client=-c
both rping rping ROLE -a 10.9.0.1 -C 10 -v
if [ "$NODE" = 2 ]; then
    [ "$(grep -c 'ping data: rdma-ping' /tmp/rping)" = 10 ] || { cat /tmp/rping; exit 1; }
    grep -hE '^ [0-9]' /tmp/send /tmp/read /tmp/atomic
    echo "soft-RoCE (emulated): send, read, atomic and rping between two guests work"
fi
rig-barrier end
