# SPDX-License-Identifier: Apache-2.0
# pool.sh - the memory that both guests share, as a devdax file. Node 1 lays it out; the others read that afterwards.
modprobe -a nfit nd_pmem dax_pmem device_dax
for ((turn = 0; turn < 100; turn++)); do
    [ ! -e /sys/bus/nd/devices/region0 ] || break
    sleep 0.1
done
if [ "$NODE" = 1 ]; then
    ndctl create-namespace --force --mode=devdax --map=mem --reconfig=namespace0.0
    rig-barrier pool
else
    rig-barrier pool
    ndctl disable-namespace all
    ndctl enable-namespace all
fi
ndctl list --namespaces --device-dax
name=$(basename "$(find -L /sys/bus/nd/devices/region0 -maxdepth 3 -name 'dax[0-9]*.[0-9]*' ! -type f | grep -v '/dax/' |
    tail -n 1)")
ls -l /dev/dax*
