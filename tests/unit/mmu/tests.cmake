# SPDX-License-Identifier: Apache-2.0
# Faults are taken by real threads here, so these run under TSan too.
foreach(stem features window table uffd map private guard poison syscalls)
    tiermesh_test(NAME test_mmu_${stem} SOURCES test_${stem}.c USES tm_mmu LABELS unit threads TIMEOUT 60)
endforeach()
