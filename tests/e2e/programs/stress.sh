#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# stress.sh CLASS: stress-ng with --verify, a fixed number of operations of one class.
source "$(dirname "$0")/common.sh"
class=${1:?the class}
name=stress_$class
stress=$(need stress-ng stress-ng)

case $class in
vm) options=(--vm 2 --vm-bytes 96M --vm-ops 60000) ;;
mmap) options=(--mmap 2 --mmap-bytes 64M --mmap-ops 40) ;;
mremap) options=(--mremap 2 --mremap-bytes 64M --mremap-ops 12) ;;
malloc) options=(--malloc 2 --malloc-bytes 1M --malloc-max 60 --malloc-ops 40000 --malloc-touch) ;;
fork) options=(--fork 2 --fork-ops 2000) ;;
vm-rw) options=(--vm-rw 2 --vm-rw-bytes 32M --vm-rw-ops 40) ;;
madvise) options=(--madvise 2 --madvise-ops 30) ;;
mprotect) options=(--mprotect 2 --mprotect-ops 3000) ;;
userfaultfd) options=(--userfaultfd 2 --userfaultfd-bytes 32M --userfaultfd-ops 8000) ;;
*) exit 2 ;;
esac
# These have little memory, or give theirs to the kernel: what is shown is that they are right beside the library. For
# the others pages must have been evicted.
case $class in
fork | mprotect | userfaultfd)
    evicted() {
        [ -s managed/summary ] || fail "there is no summary"
        evictions=0 faults=0
    }
    ;;
esac
command=("$stress" --verify --temp-path "$scratch" --seed 9 --timeout "$limit_s" "${options[@]}")
natively "${command[@]}"
managed "${command[@]}"
grep -q 'successful run completed' managed/out managed/err || fail "$(tail -n 20 managed/out managed/err)"
verdict
