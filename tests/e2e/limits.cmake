# SPDX-License-Identifier: Apache-2.0
# Budgets that follow the memory cgroup: limits.sh with a node, and with an ordinary program under the preload library.
if(NOT TARGET tiermesh OR NOT TARGET dsmrun)
    return()
endif()

tiermesh_test_program(e2e_limits_node SOURCES ${CMAKE_CURRENT_LIST_DIR}/limits.c USES tiermesh DEFINITIONS NODE)
foreach(case below_limit lowered)
    tiermesh_test(NAME e2e_limits_node_${case} LABELS e2e TIMEOUT 120
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/limits.sh ${case} $<TARGET_FILE:e2e_limits_node>)
endforeach()
