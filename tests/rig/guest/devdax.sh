# SPDX-License-Identifier: Apache-2.0
# CXL memory as a devdax file: its size, what it keeps, what it refuses, and that kmem can still take it.
name=$(basename "$CXL_DAX")
[ "$(cat "/sys/bus/dax/devices/$name/size")" = $((512 << 20)) ] || { echo "$name has not 512 MiB"; exit 1; }
[ ! -e /sys/devices/system/node/node1/meminfo ] || ! grep -q 'MemTotal: *[1-9]' \
    /sys/devices/system/node/node1/meminfo || { echo "the memory is on line as well"; exit 1; }
tests/rig_probe dax "$CXL_DAX"
echo offline >/sys/devices/system/memory/auto_online_blocks
daxctl reconfigure-device --mode=system-ram --no-online "$name" >/dev/null
[ ! -e "$CXL_DAX" ] || [ "$(basename "$(readlink "/sys/bus/dax/devices/$name/driver")")" = kmem ] ||
    { echo "kmem could not take $name"; exit 1; }
echo "a devdax file of CXL memory (emulated) works, and became a node afterwards"
