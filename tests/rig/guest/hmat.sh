# SPDX-License-Identifier: Apache-2.0
# A node that HMAT describes as slower: the attributes that placement reads, as the machine was told them.
access=/sys/devices/system/node/node1/access0/initiators
[ -z "$(tr -d '[:space:]' </sys/devices/system/node/node1/cpulist)" ] || { echo "node 1 has processors"; exit 1; }
for expected in read_latency=300 write_latency=300 read_bandwidth=25600 write_bandwidth=25600; do
    [ "$(cat "$access/${expected%%=*}")" = "${expected#*=}" ] ||
        { echo "${expected%%=*} is $(cat "$access/${expected%%=*}"), not ${expected#*=}"; exit 1; }
done
[ "$(cat /sys/devices/system/node/node0/access0/initiators/read_latency)" = 100 ] ||
    { echo "node 0 has another latency than it was told"; exit 1; }
tests/rig_probe node 1
echo "an HMAT node (emulated) works"
