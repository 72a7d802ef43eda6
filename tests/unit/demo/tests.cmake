# SPDX-License-Identifier: Apache-2.0
# The demo's own code, on the plain stand-in for the library: 1 to 5 nodes as forked processes.
set(plain ${CMAKE_SOURCE_DIR}/tests/support/dsm_plain.c)
set(packages ${CMAKE_CURRENT_LIST_DIR}/packages.txt)
tiermesh_test(NAME test_demo_parse SOURCES test_parse.c USES tm_demo LABELS unit)
tiermesh_test(NAME test_demo_graph SOURCES test_graph.c ${plain} USES tm_demo LABELS unit ARGS ${packages})
tiermesh_test(NAME test_demo_1_node SOURCES ${CMAKE_SOURCE_DIR}/demo/pkgrank.c ${plain} USES tm_demo LABELS unit
    ARGS ${packages} ENVIRONMENT DSM_SIZE=1)
foreach(nodes 2 3 5)
    tiermesh_test(NAME test_demo_${nodes}_nodes COMMAND test_demo_1_node ${packages} LABELS unit
        ENVIRONMENT DSM_SIZE=${nodes})
endforeach()
tiermesh_test(NAME test_demo_whole_distribution COMMAND test_demo_1_node LABELS unit ENVIRONMENT DSM_SIZE=3)
tiermesh_test(NAME test_demo_failures COMMAND ${CMAKE_CURRENT_LIST_DIR}/failures.sh $<TARGET_FILE:test_demo_1_node>
    LABELS unit)
