# SPDX-License-Identifier: Apache-2.0
# cxl.sh node|dax - a region over the CXL memory device mem0 (what `cxl create-region -t ram` does; Debian 12 has no
# cxl), then either onlined as a NUMA node without processors or left as a devdax file, $CXL_DAX.
use=$1
devices=/sys/bus/cxl/devices

# wait_for WHAT COMMAND...: until it succeeds, 10 s at most.
wait_for() {
    local what=$1 turn
    shift
    for ((turn = 0; turn < 100; turn++)); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    echo "$what did not come within 10 s"
    exit 1
}
first() { compgen -G "$1" | sort | head -n 1 | grep .; }

modprobe -a cxl_acpi cxl_pci cxl_mem device_dax
if [ "$use" = node ]; then
    echo online_movable >/sys/devices/system/memory/auto_online_blocks
    modprobe kmem
fi
wait_for "the memory device" test -e "$devices/mem0"
wait_for "the window of the host bridge" test -e "$devices/decoder0.0"
wait_for "the decoders of the memory device" first "$devices/endpoint*/decoder*.0" >/dev/null
size=$(($(cat "$devices/mem0/ram/size")))
decoder=$(basename "$(first "$devices/endpoint*/decoder*.0")")
region=$(cat "$devices/decoder0.0/create_ram_region")
echo "$region" >"$devices/decoder0.0/create_ram_region"
echo ram >"$devices/$decoder/mode"
echo "$size" >"$devices/$decoder/dpa_size"
echo 256 >"$devices/$region/interleave_granularity"
echo 1 >"$devices/$region/interleave_ways"
echo "$size" >"$devices/$region/size"
echo "$decoder" >"$devices/$region/target0"
echo 1 >"$devices/$region/commit"
modprobe dax_cxl
[ -e "$devices/$region/driver" ] || echo "$region" >/sys/bus/cxl/drivers/cxl_region/bind
# dax_cxl asks for kmem; an NVDIMM beside it takes the lower numbers.
dax_of_region() { find "$devices/$region/" -maxdepth 2 -name 'dax[0-9]*.[0-9]*' | grep .; }
wait_for "the dax device of $region" dax_of_region >/dev/null
dax=$(basename "$(dax_of_region)")
if [ "$use" = node ]; then
    wait_for "node 1" grep -q MemTotal /sys/devices/system/node/node1/meminfo
    exit 0
fi
bus=/sys/bus/dax
[ ! -e "$bus/devices/$dax/driver" ] || echo "$dax" >"$bus/devices/$dax/driver/unbind"
echo "$dax" >"$bus/drivers/device_dax/new_id"
[ -e "$bus/devices/$dax/driver" ] || echo "$dax" >"$bus/drivers/device_dax/bind"
wait_for "/dev/$dax" test -c "/dev/$dax"
echo "CXL_DAX=/dev/$dax" >>/run/environment
