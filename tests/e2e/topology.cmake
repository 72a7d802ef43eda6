# SPDX-License-Identifier: Apache-2.0
# Which transport, and what dsmctl says of it: one test a case of topology.sh.
if(NOT TARGET tiermesh OR NOT TARGET dsmrun OR NOT TARGET dsmctl)
    return()
endif()

tiermesh_test_program(e2e_topology_node SOURCES ${CMAKE_CURRENT_LIST_DIR}/topology_node.c USES tiermesh)
set(topology ${CMAKE_CURRENT_LIST_DIR}/topology.sh $<TARGET_FILE:dsmrun> $<TARGET_FILE:dsmctl>
    $<TARGET_FILE:e2e_topology_node>)
foreach(case shm tcp pool fallback quiet stale)
    tiermesh_test(NAME e2e_topology_${case} COMMAND ${topology} ${case} LABELS e2e TIMEOUT 60)
endforeach()
tiermesh_test(NAME e2e_topology_rdma COMMAND ${topology} rdma LABELS rig TIMEOUT 60)
