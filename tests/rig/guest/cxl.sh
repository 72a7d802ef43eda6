# SPDX-License-Identifier: Apache-2.0
# A CXL device as NUMA node 1: seen as CXL, without processors, in a slower tier of the kernel, and usable page by page.
node=/sys/devices/system/node/node1
[ -z "$(tr -d '[:space:]' <"$node/cpulist")" ] || { echo "node 1 has processors"; exit 1; }
[ "$(cat /sys/bus/cxl/devices/mem0/ram/size)" = 0x20000000 ] || { echo "the device has not 512 MiB"; exit 1; }
[ "$(cat /sys/bus/cxl/devices/region0/commit)" = 1 ] || { echo "the region is not committed"; exit 1; }
grep -q 'System RAM (kmem)' /proc/iomem || { echo "kmem has not taken the region"; exit 1; }
tiers=(/sys/devices/virtual/memory_tiering/memory_tier*)
[ "${#tiers[@]}" = 2 ] || { echo "the kernel has not two tiers of memory: ${tiers[*]}"; exit 1; }
tests/rig_probe node 1
# A program whose memory is all there, its code included.
numactl --membind=1 sort -n --parallel=1 <(seq 20000 -1 1) | cmp - <(seq 20000)
echo "a CXL node (emulated) works: $(numactl -H | grep 'node 1 size')"
