# SPDX-License-Identifier: Apache-2.0
# The demo on two guests over TCP: node 1 starts it on both by ssh, each node with a CXL and an NVMe tier.
if [ "$NODE" = 1 ]; then
    /build/dsmrun -H node1,node2 --ddr 2M --cxl 2M --nvme 256M:/nvme --transport tcp --timeout 150 -- \
        /build/pkgrank >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    cat /tmp/log
    for word in '^demo: ok: [0-9]+ packages.* on 2 nodes' 'from remote' 'from cxl' 'from nvme' emulated; do
        grep -qE "$word" /tmp/log || { echo "the demo's output has no '$word'"; exit 1; }
    done
    rig-barrier done 5
else
    # What node 1 starts here runs under its ssh server.
    rig-barrier done 170
fi
