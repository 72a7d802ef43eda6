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
listed=$(ndctl list --namespaces --device-dax)
name=$(sed -n 's/.*"chardev":"\(dax[0-9.]*\)".*/\1/p' <<<"$listed")
if [ ! -c "/dev/$name" ]; then
    echo "the shared memory has no devdax file: $listed"
    exit 1
fi
echo "POOL_DAX=/dev/$name" >>/run/environment
