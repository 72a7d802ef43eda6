# SPDX-License-Identifier: Apache-2.0
# Whole nodes over RDMA in one guest: locks and atomics, coherence of shared pages, explicit transfers; the same
# programs that the host runs over its other transports. They start dsmrun from where they are, and need a disk for
# their tiers. Every job of theirs must say that its nodes reach each other by RDMA, and reads of several MiB must be
# one-sided.
export TIERMESH_TEST_PATH="verbs: rxe0" TIERMESH_TEST_NEEDS_VERBS=1
mkdir -p /nvme/nodes
cd /nvme/nodes
cp /build/dsmrun .
failed=0
for program in locks coherence transfer; do
    status=0
    timeout -s KILL 100 "/build/tests/e2e_$program" --set transport=verbs --set bind=10.9.0.1 --set log=info \
        >/tmp/log 2>&1 || status=$?
    echo "$program: status $status, $(tail -n 1 /tmp/log)"
    if [ "$status" != 0 ] || ! grep -q '[1-9][0-9]* passed, 0 failed' /tmp/log; then
        grep -aE 'FAILED|error' /tmp/log || true
        failed=1
    fi
done
exit $failed
