# SPDX-License-Identifier: Apache-2.0
# start.sh - runs in each guest: brings its devices up, runs the command, leaves the result in /job.
#
# Of the kernel's command line: rig.node, rig.nodes, and rig.devices with the scripts of this folder to run before the
# command, with what follows a colon. They may add variables for it in /run/environment.
set -u
guest=/source/bench/qemu/guest
export NODE=1 NODES=1
devices=
for word in $(cat /proc/cmdline); do
    case $word in
    rig.node=*) NODE=${word#*=} ;;
    rig.nodes=*) NODES=${word#*=} ;;
    rig.devices=*) devices=${word#*=} ;;
    esac
done
hostname "node$NODE"
ulimit -l unlimited
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
    ip addr add "10.9.0.$NODE/24" dev eth0
    ip link set eth0 up
fi
for helper in barrier crash; do
    ln -s "$guest/$helper.sh" "/usr/bin/rig-$helper"
done

# Programs of a build name their libraries by the path that it has on the host.
built=$(cat /job/build)
mkdir -p "$built" && mount --bind /build "$built"

status=0
: >/run/environment
for device in ${devices//,/ }; do
    if ! bash -eu "$guest/${device%%:*}.sh" "${device#*:}" >>"/job/devices.$NODE" 2>&1; then
        echo "$device did not come up" >>"/job/devices.$NODE"
        status=125
        break
    fi
done
cut -d ' ' -f 1 /proc/uptime >"/job/ready.$NODE"
if [ "$status" = 0 ]; then
    set -a
    source /run/environment
    set +a
    cd /build || cd /
    bash "/job/command.$NODE" >"/job/output.$NODE" 2>"/job/errors.$NODE" </dev/null
    status=$?
fi
dmesg >"/job/kernel.$NODE"
echo "$status" >"/job/status.$NODE.new" && mv "/job/status.$NODE.new" "/job/status.$NODE"
