# SPDX-License-Identifier: Apache-2.0
# nvme.sh - a file system on the NVMe disk, at /nvme.
modprobe -a nvme ext4
for ((turn = 0; turn < 100; turn++)); do
    [ ! -b /dev/nvme0n1 ] || break
    sleep 0.1
done
mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=1 /dev/nvme0n1
mount -t ext4 /dev/nvme0n1 /nvme
