# SPDX-License-Identifier: Apache-2.0
# Unchanged programs on the guest's kernel, which makes huge pages of all memory: pins in them, and forks.
echo always >/sys/kernel/mm/transparent_hugepage/enabled
export TRAP_EVICTS=1
cd /nvme

# traps PROGRAM BUDGET PRESSURE CASE...: one after the other, each within a bound.
traps() {
    local program=$1 budget=$2 pressure=$3 case
    shift 3
    for case in "$@"; do
        TRAP_PRESSURE=$pressure timeout 60 /build/dsmrun --ddr "$budget" --cxl 256M --nvme 256M:/nvme --summary off -- \
            "/build/tests/${program}_native" "$case"
    done
}

traps trap_pin 32M 60 in_a_huge_page
traps trap_pin 4M 10 direct registered_buffers gifts
echo "pins in huge pages passed in the guest, $(uname -r)"
