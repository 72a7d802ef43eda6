# SPDX-License-Identifier: Apache-2.0
# rig_tiers.sh: run by rig.sh in a guest with a slower NUMA node and an NVMe disk. An unchanged program touches 24 MiB
# at random under DDR and CXL budgets; what is told are counts, and how much of the slower node was really used.
used_kib() { awk '/MemUsed:/ { print $4 }' /sys/devices/system/node/node1/meminfo; }

before=$(used_kib)
most=$before
(sleep 1; echo 6; sleep 8) | /build/dsmrun --ddr 8M --cxl 12M --nvme 64M:/nvme --timeout 60 --summary /tmp/summary -- \
    /build/bench/bench_pattern 24 random 1 store >/tmp/log 2>&1 &
program=$!
while kill -0 "$program" 2>/dev/null; do
    now=$(used_kib)
    most=$((now > most ? now : most))
    sleep 0.2
done
wait "$program" || { cat /tmp/log; exit 1; }
cat /tmp/summary
echo "node 1 (described by HMAT as slower): at most $((most - before)) KiB more in use than before"
