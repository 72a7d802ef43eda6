#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verbs.sh SOURCE LIBRARY yes|no BARE: rdma-core is known to the files of the verbs carrier only; the library needs it
# exactly when the build found it; and BARE, a program over the fabric as it is built without, does not need it.
set -euo pipefail
source=$1
library=$2
is_found=$3
bare=$4
findings=0

finding() {
    echo "$*"
    findings=$((findings + 1))
}

needs_rdma() {
    readelf -d "$1" | grep -qE '\(NEEDED\).*\[(libibverbs|librdmacm)\.so'
}

cd "$source"
while read -r file; do
    case $file in
    fabric/verbs.h | tests/rig/*) ;;
    *) finding "$file: includes headers of rdma-core; only fabric/verbs.h may" ;;
    esac
done < <(grep -rlE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<(infiniband|rdma)/' --include='*.[ch]' \
    base mmu tiers fabric coherence cluster prefetch runtime shim tools demo tests bench include || true)

case $is_found in
yes) needs_rdma "$library" || finding "$library does not need rdma-core, which this build found" ;;
no) ! needs_rdma "$library" || finding "$library needs rdma-core, which this build is without" ;;
*) finding "is rdma-core there? '$is_found'" ;;
esac
! needs_rdma "$bare" || finding "$bare needs rdma-core"

if [ "$findings" -gt 0 ]; then
    echo "verbs: $findings findings"
    exit 1
fi
echo "verbs: ok, rdma-core found: $is_found"
