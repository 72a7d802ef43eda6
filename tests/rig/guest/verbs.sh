# SPDX-License-Identifier: Apache-2.0
# RDMA over soft-RoCE in one guest, which is its own peer: the fabric's contract plain and under faults, broken queue
# pairs and hostile peers, one-sided pages and atomics, and a job that runs over it. Nothing of it may be skipped.
export TIERMESH_TEST_ADDRESS=10.9.0.1 TIERMESH_TEST_NEEDS_VERBS=1
failed=0

# try NAME PROGRAM ARGUMENT...
try() {
    local name=$1 status=0 begin=$SECONDS
    shift
    timeout -s KILL 100 "$@" >"/tmp/$name" 2>&1 || status=$?
    echo "$name: status $status in $((SECONDS - begin)) s"
    if [ "$status" != 0 ]; then
        tail -n 30 "/tmp/$name"
        failed=1
    fi
}

try contract /build/tests/fabric_contract_loopback verbs
try contract-uring /build/tests/fabric_contract_loopback verbs io_uring
try contract-faulty /build/tests/fabric_contract_loopback verbs faulty
try faults /build/tests/fabric_verbs_faults
try pages /build/tests/fabric_verbs_pages
try topology bash /source/tests/e2e/topology.sh /build/dsmrun /build/dsmctl /build/tests/e2e_topology_node rdma
exit $failed
