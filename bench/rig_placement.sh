# SPDX-License-Identifier: Apache-2.0
# rig_placement.sh SECONDS: run by rig.sh in a guest with a slower NUMA node 1. An unchanged program touches 32 MiB with
# Zipf's weights under a DDR budget of a quarter of it; what is told is where the kernel says that its pages lie.
/build/dsmrun --ddr 8M --cxl 40M:node --timeout $((${1:?} + 60)) --summary /tmp/summary -- \
    /build/bench/bench_placement 32 8 "$1" 0 || { cat /tmp/summary; exit 1; }
cat /tmp/summary
