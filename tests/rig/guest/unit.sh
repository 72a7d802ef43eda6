# SPDX-License-Identifier: Apache-2.0
# The project's own tests of what wraps the kernel, in a guest: another kernel, another processor, and TCP of its own.
ran=0

# passes PROGRAM ARGUMENT...: it does, or it says that it cannot run here.
passes() {
    local status=0 started=$SECONDS
    "$@" >/tmp/log 2>&1 </dev/null || status=$?
    case $status in
    0)
        ran=$((ran + 1))
        echo "passed: $* in $((SECONDS - started)) s"
        ;;
    77) echo "skipped, not passed: $*: $(tail -n 1 /tmp/log)" ;;
    *)
        cat /tmp/log
        echo "$*: status $status"
        exit 1
        ;;
    esac
}

cd tests
# On Linux 6.12 UFFDIO_MOVE of a pinned page does not return before the pin ends, and a hole is told otherwise than later
# kernels tell it: test_mmu_private does not pass there (docs/RIG.md, "What it found").
echo "left out: test_mmu_private, which does not pass on Linux 6.12"
for test in test_mmu_* test_tiers_nvme test_tiers_shared_slots test_tiers_ddr test_tiers_cxl; do
    [ "$test" = test_mmu_private ] || passes "./$test"
done
for arguments in tcp 'tcp io_uring' shm 'tcp faulty'; do
    passes ./fabric_contract_loopback $arguments
done
[ "$ran" -ge 12 ] || { echo "only $ran tests ran"; exit 1; }
/build/dsmctl --version
echo "$ran tests passed in the guest, $(uname -r)"
