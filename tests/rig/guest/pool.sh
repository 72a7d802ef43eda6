# SPDX-License-Identifier: Apache-2.0
# Memory that two guests share: each sees what the other stored, and atomics of both on one word lose nothing. It is
# coherent between guests as a device behind one processor is; a missing flush would not show here.
adds=200000
tests/rig_probe pool "$POOL_DAX" write "$NODE"
rig-barrier written
tests/rig_probe pool "$POOL_DAX" check $((3 - NODE))
before=$(tests/rig_probe pool "$POOL_DAX" total)
rig-barrier checked
tests/rig_probe pool "$POOL_DAX" add "$adds"
rig-barrier added
total=$(tests/rig_probe pool "$POOL_DAX" total)
[ "$((total - before))" = $((2 * adds)) ] ||
    { echo "the guests added $((total - before)), not $((2 * adds))"; exit 1; }
echo "a shared pool (emulated) works: $((2 * adds)) atomic additions of two guests, none lost"
