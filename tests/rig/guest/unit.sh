# SPDX-License-Identifier: Apache-2.0
# The project's own tests of what wraps the kernel, run in a guest: another kernel, another processor, and TCP of its own.
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
for test in test_mmu_* test_tiers_nvme test_tiers_shared_slots test_tiers_ddr test_tiers_cxl; do
    passes "./$test"
done
for arguments in tcp 'tcp io_uring' shm 'tcp faulty'; do
    passes ./fabric_contract_loopback $arguments
done
[ "$ran" -ge 12 ] || { echo "only $ran tests ran"; exit 1; }
/build/dsmctl --version
echo "$ran tests passed in the guest, $(uname -r)"
