# SPDX-License-Identifier: Apache-2.0
# CXL memory (emulated by QEMU) as NUMA node 1, used in place: it is found and named, hot pages end in DDR and others
# far, and a machine without such a node is refused when one is asked for. Counts are checked; times say nothing here.
./dsmctl topology >/tmp/topology
cat /tmp/topology
grep -q '^node 1: cxl' /tmp/topology || { echo "node 1 is not called cxl"; exit 1; }
./dsmctl topology 1=none | grep -q '^node 1: none' || { echo "option nodes does not overrule"; exit 1; }
./dsmrun --ddr 8M --cxl 256M:node tests/hot_pages 24 2 40 0 || { echo "hot pages are not near"; exit 1; }
DSM_NODES=1=none ./dsmrun --ddr 8M --cxl 64M:node tests/hot_pages 24 2 2 0 >/tmp/log 2>&1 || true
grep -q 'this machine has none online' /tmp/log || { cat /tmp/log; echo "no node, and it was not said"; exit 1; }
echo "CXL memory (emulated) in place works"
