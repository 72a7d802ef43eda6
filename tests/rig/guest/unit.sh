# SPDX-License-Identifier: Apache-2.0
# The project's own tests of what wraps the kernel, in a guest: another kernel, another processor, and TCP of its own.
ran=0
export TIERMESH_BUILD=/nvme

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

cd /nvme
# The guest's kernel makes huge pages of all that it can: what docs/MMU.md says of those that are pinned is seen here.
echo always >/sys/kernel/mm/transparent_hugepage/enabled
for test in test_mmu_{features,guard,poison,private,syscalls,uffd,window} test_tiers_{nvme,shared_slots,ddr,cxl}; do
    passes "/build/tests/$test"
done
for arguments in tcp 'tcp io_uring' shm 'tcp faulty'; do
    passes /build/tests/fabric_contract_loopback $arguments
done
[ "$ran" -ge 13 ] || { echo "only $ran tests ran"; exit 1; }
/build/dsmctl --version
echo "$ran tests passed in the guest, $(uname -r)"
