# SPDX-License-Identifier: Apache-2.0
# Two guests that share memory (a pool, emulated: an NVDIMM of both): the fabric's contract in one guest over the
# device, then the demo on both, its messages and pages through the pool. Nothing but starting goes over the network:
# the fabric is told the pool alone.
if [ "$NODE" = 1 ]; then
    TIERMESH_TEST_POOL=$POOL_DAX tests/fabric_contract_loopback pool >/tmp/contract 2>&1 ||
        { cat /tmp/contract; echo "the contract over $POOL_DAX"; exit 1; }
    tail -n 5 /tmp/contract
    /build/dsmrun -H node1,node2 --ddr 2M --cxl 2M --nvme 256M:/nvme --transport pool --set pool="$POOL_DAX" \
        --timeout 150 -- /build/pkgrank >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    cat /tmp/log
    for word in '^demo: ok: [0-9]+ packages.* on 2 nodes' 'from remote'; do
        grep -qE "$word" /tmp/log || { echo "the demo's output has no '$word'"; exit 1; }
    done
    rig-barrier done 5
else
    rig-barrier done 190
fi
