# SPDX-License-Identifier: Apache-2.0
# Real threads and userfaultfd in one process, on a node with tiny tiers; made for the sanitizers, small enough for all.
set(stress_support ${CMAKE_SOURCE_DIR}/tests/support/node_test.c)

tiermesh_test(NAME stress_paging SOURCES stress_paging.c ${stress_support} USES tiermesh
    LABELS stress threads TIMEOUT 180)
tiermesh_test(NAME stress_locks SOURCES stress_locks.c ${stress_support} USES tiermesh
    LABELS stress threads TIMEOUT 90)
if(TARGET stress_paging)
    tiermesh_test(NAME stress_paging_long COMMAND stress_paging mixed_long LABELS stress threads long TIMEOUT 320)
endif()
