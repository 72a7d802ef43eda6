#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# init.sh - /init of the guests: finds the repository, where the rest of the guest's side lies, and goes on there.
export PATH=/usr/bin:/usr/sbin HOME=/root LANG=C
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
modprobe -a virtio_net 9p 9pnet_virtio crc32-pclmul
shared=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "$shared,cache=none" job /job            # commands and results: no caching
mount -t 9p -o "$shared,cache=loose,ro" source /source
mount -t 9p -o "$shared,cache=loose,ro" build /build
bash /source/bench/qemu/guest/start.sh || echo "the guest's start failed"
sync
poweroff -f
