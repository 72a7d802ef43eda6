# SPDX-License-Identifier: Apache-2.0
# Programs that move pages through a loop need one; the runtime's would link everything.
file(GLOB tiers_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.c)
foreach(source ${tiers_tests})
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" stem ${stem})
    tiermesh_test(NAME test_tiers_${stem} SOURCES ${source} ${CMAKE_SOURCE_DIR}/tests/support/loop_sync.c
        USES tm_tiers LABELS unit TIMEOUT 60)
endforeach()

# The same over the runtime's own loops.
tiermesh_test(NAME test_tiers_real_loop SOURCES real_loop.c USES tm_runtime tm_tiers LABELS unit threads TIMEOUT 60)
