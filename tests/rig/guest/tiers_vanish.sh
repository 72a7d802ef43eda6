# SPDX-License-Identifier: Apache-2.0
# The CXL node (emulated by QEMU) goes offline while pages lie there: the kernel moves them, contents stay right.
./dsmrun --ddr 8M --cxl 256M:node tests/hot_pages 24 2 30 0 >/tmp/log 2>&1 &
program=$!
sleep 12
device=$(basename /sys/bus/dax/devices/dax*.0)
daxctl offline-memory "$device" >/dev/null || { cat /tmp/log; echo "the node does not go offline"; exit 1; }
./dsmctl topology
./dsmctl topology | grep -q '^node 1: offline' || { echo "node 1 is not called offline"; exit 1; }
wait "$program" || true # nothing is far any more, so it says 1
cat /tmp/log
grep -q 'contents right' /tmp/log || { echo "contents are wrong"; exit 1; }
grep -q '; the others: [0-9]* near, 0 far' /tmp/log || { echo "pages lie on a node that is gone"; exit 1; }
echo "a CXL node (emulated) that goes offline while it is used loses nothing"
