# SPDX-License-Identifier: Apache-2.0
foreach(file session stream verbs_choose verbs_greet)
    tiermesh_test(NAME test_fabric_${file} SOURCES test_${file}.c USES tm_fabric LABELS unit)
endforeach()
tiermesh_test(NAME test_fabric_ring SOURCES test_ring.c USES tm_fabric LABELS unit threads)
