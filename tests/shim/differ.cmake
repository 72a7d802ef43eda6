# SPDX-License-Identifier: Apache-2.0
# Calls at random, natively and managed. The first seed showed a difference when memory that
# moved lost what madvise had said of it. More by hand: differ.sh LIBRARY PROGRAM FIRST LAST STEPS.
tiermesh_test_program(shim_differ SOURCES ${CMAKE_CURRENT_LIST_DIR}/differ.c)
set(differ ${CMAKE_CURRENT_LIST_DIR}/differ.sh $<TARGET_FILE:tiermesh-preload> $<TARGET_FILE:shim_differ>)
tiermesh_test(NAME shim_differ_evicting LABELS shim TIMEOUT 120 COMMAND ${differ} 1 2 250)
tiermesh_test(NAME shim_differ_copying LABELS shim long TIMEOUT 120 COMMAND ${differ} 3 5 250
    ENVIRONMENT DSM_UFFD_MOVE=off)
