# SPDX-License-Identifier: Apache-2.0
# An NVMe disk as the store of an unchanged program: sort with little of its memory in DDR, the rest on the disk.
count_kib() { awk '$3 == "nvme0n1" { print $'"$1"' / 2 }' /proc/diskstats; }

[ "$(cat /sys/class/nvme/nvme0/transport)" = pcie ] || { echo "the disk is no NVMe disk"; exit 1; }
seq 60000 | awk '{ print ($1 * 7919) % 60013, "row", $1 }' >/tmp/rows
sort -n /tmp/rows >/tmp/expected
written=$(count_kib 10)
read=$(count_kib 6)
/build/dsmrun --ddr 2M --nvme 256M:/nvme --timeout 80 --summary /tmp/summary -- \
    sort -n -S 16M --parallel=1 /tmp/rows >/tmp/sorted || { cat /tmp/summary; exit 1; }
cmp /tmp/expected /tmp/sorted
written=$(($(count_kib 10) - written))
read=$(($(count_kib 6) - read))
cat /tmp/summary
echo "sort under dsmrun on an NVMe disk (emulated): $written KiB written, $read KiB read past the page cache"
[ "$written" -gt 1024 ] && [ "$read" -gt 1024 ] || { echo "the disk was hardly used"; exit 1; }
[ "$(ls -A /nvme)" = lost+found ] || { echo "files are left on the disk: $(ls -A /nvme)"; exit 1; }
