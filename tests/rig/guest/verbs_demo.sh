# SPDX-License-Identifier: Apache-2.0
# The demo on two guests over RDMA: node 1 starts it on both by ssh. Nothing is told of TCP: all of it went by queue
# pairs, from the first connection to the last.
if [ "$NODE" = 1 ]; then
    /build/dsmrun -H node1,node2 --ddr 2M --cxl 2M --nvme 256M:/nvme --transport verbs --set log=info --timeout 150 -- \
        /build/pkgrank >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    cat /tmp/log
    for word in '^demo: ok: [0-9]+ packages.* on 2 nodes' 'from remote'; do
        grep -qE "$word" /tmp/log || { echo "the demo's output has no '$word'"; exit 1; }
    done
    for peer in 0 1; do
        grep -q "node $peer is reached by verbs: rxe0 .*; control messages by verbs: rxe0 " /tmp/log ||
            { echo "node $peer was not reached by RDMA on both planes"; exit 1; }
    done
    if grep -qE 'using TCP|by tcp' /tmp/log; then
        echo "something went by TCP"
        exit 1
    fi
    rig-barrier done 5
else
    rig-barrier done 170
fi
