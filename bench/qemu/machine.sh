# SPDX-License-Identifier: Apache-2.0
# Sourced by boot.sh: from the options to the command line of one QEMU. Each part appends to `arguments`, `machine` and
# `devices`, the scripts of guest/ that bring the part up.
#
# Three things are there because without them nothing works, or works wrongly:
#   hypervisor=off     else the kernel refuses to commit a CXL region ("Failed to synchronize CPU cache state")
#   bus=pcie.0         else a device may land on the CXL host bridge, which takes nothing but bridges
#   maxcpus >= 2       with one possible processor TCG makes of a guest's atomics plain loads and stores, and two guests
#                      lose each other's updates of shared memory
# and one for speed: erms=off,fsrm=off, since `rep stosb` clears CXL memory byte by byte through the device path.

machine_memory() {
    local most=
    [ -z "$pool" ] || most=,slots=1,maxmem=64G
    arguments+=(-object "memory-backend-ram,id=m0,size=${memory}M")
    arguments+=(-numa "node,nodeid=0,memdev=m0,cpus=0-$((cpus_most - 1))")
    if [ -z "$hmat" ]; then
        arguments+=(-m "${memory}M$most")
        return
    fi
    machine+=,hmat=on
    arguments+=(-m "$((memory + hmat))M$most" -object "memory-backend-ram,id=m1,size=${hmat}M")
    arguments+=(-numa node,nodeid=1,memdev=m1,initiator=0 -numa dist,src=0,dst=1,val=20)
    local target common=hmat-lb,initiator=0,hierarchy=memory
    local latency_ns=(100 300) bandwidth=(100G 25G)
    for target in 0 1; do
        arguments+=(-numa "$common,target=$target,data-type=access-latency,latency=${latency_ns[target]}")
        arguments+=(-numa "$common,target=$target,data-type=access-bandwidth,bandwidth=${bandwidth[target]}")
    done
}

machine_cxl() {
    [ -n "$cxl" ] || return 0
    machine+=,cxl=on,cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G
    arguments+=(-object "memory-backend-ram,id=cxlm,size=${cxl}M"
        -device pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1
        -device cxl-rp,port=0,bus=cxl.1,id=rp0,chassis=0,slot=2
        -device cxl-type3,bus=rp0,volatile-memdev=cxlm,id=cxlmem0,sn=0x1)
    devices+=,cxl:$cxl_use
}

machine_pool() {
    [ -n "$pool" ] || return 0
    machine+=,nvdimm=on
    arguments+=(-object "memory-backend-file,id=pool,size=${pool}M,mem-path=$job/pool,share=on"
        -device nvdimm,memdev=pool,id=nvdimm0)
    devices+=,pool
}

machine_nvme() {
    [ -n "$nvme" ] || return 0
    truncate -s "${nvme}M" "$job/nvme.$node"
    arguments+=(-drive "file=$job/nvme.$node,format=raw,if=none,id=disk,cache=unsafe"
        -device "nvme,bus=pcie.0,drive=disk,serial=rig$node")
    devices+=,nvme
}

# Two guests have a pair of unix sockets for a cable; one alone has a network without anybody.
machine_network() {
    if [ "$nodes" -gt 1 ]; then
        local remote=$((3 - node)) kind=dgram,id=net,local.type=unix,remote.type=unix
        arguments+=(-netdev "$kind,local.path=$job/net.$node,remote.path=$job/net.$remote")
    else
        arguments+=(-netdev user,id=net,restrict=on)
    fi
    arguments+=(-device "virtio-net-pci,bus=pcie.0,netdev=net,host_mtu=9000,romfile=,mac=52:54:00:09:00:0$node")
    [ -z "$rxe" ] || devices+=,rxe
    [ -z "$ssh" ] || devices+=,ssh
}

machine_shares() {
    local name folder=("job=$job" "source=$source_tree,readonly=on" "build=$build,readonly=on")
    for name in "${folder[@]}"; do
        arguments+=(-fsdev "local,id=${name%%=*},security_model=none,multidevs=remap,path=${name#*=}"
            -device "virtio-9p-pci,bus=pcie.0,fsdev=${name%%=*},mount_tag=${name%%=*}")
    done
}

# machine_arguments: sets `arguments` for guest number `node`.
machine_arguments() {
    local host=$out/host machine=q35,usb=off,vmport=off,smbus=off,sata=off devices=
    local accelerator=tcg,thread=multi,tb-size=256 line
    [ "$accel" != kvm ] || accelerator=kvm
    arguments=(-L "$host/usr/share/qemu" -L "$host/usr/share/seabios" -nodefaults -no-user-config -display none
        -no-reboot -accel "$accelerator" -cpu max,la57=off,hypervisor=off,erms=off,fsrm=off
        -smp "$cpus,maxcpus=$cpus_most" -kernel "$out/vmlinuz" -initrd "$out/initrd" -serial "file:$job/console.$node")
    machine_memory
    machine_cxl
    machine_pool
    machine_nvme
    machine_network
    machine_shares
    line="console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on"
    [ "$accel" != tcg ] || line+=" tsc=reliable no_timer_check"
    line+=" rig.node=$node rig.nodes=$nodes"
    [ -z "$devices" ] || line+=" rig.devices=${devices#,}"
    arguments+=(-machine "$machine" -append "$line")
}
