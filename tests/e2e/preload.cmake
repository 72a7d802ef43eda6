# SPDX-License-Identifier: Apache-2.0
# dsmrun and dsmctl with programs that are not nodes: one test a case of preload.sh.
if(NOT TARGET tiermesh-preload OR NOT TARGET dsmctl OR NOT TARGET tm_runtime)
    message(STATUS "tests of dsmrun's preload mode are left out: this build has no preload library")
    return()
endif()

tiermesh_test_program(e2e_managed SOURCES ${CMAKE_CURRENT_LIST_DIR}/managed.c USES tm_runtime)
tiermesh_test_program(e2e_node_env SOURCES ${CMAKE_CURRENT_LIST_DIR}/node_env.c USES tiermesh)
# Without assert.h and the like of ours: an ordinary program.
add_executable(e2e_plain_forks ${CMAKE_CURRENT_LIST_DIR}/plain_forks.c)
set_target_properties(e2e_plain_forks PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_executable(e2e_static ${CMAKE_CURRENT_LIST_DIR}/static.c)
set_target_properties(e2e_static PROPERTIES POSITION_INDEPENDENT_CODE OFF LINK_FLAGS "-static"
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(case refusals environment store summary dsmctl dsmctl_early ulimit userfaultfd disk_full namespaces chroot
        two_jobs dsmctl_percent store_full)
    tiermesh_test(NAME e2e_preload_${case} LABELS e2e TIMEOUT 120
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/preload.sh ${CMAKE_BINARY_DIR} ${case})
    set_property(TEST e2e_preload_${case} APPEND PROPERTY ENVIRONMENT CC=${CMAKE_C_COMPILER})
endforeach()
foreach(case tree orphans daemon exec killed user)
    tiermesh_test(NAME e2e_preload_forks_${case} LABELS e2e TIMEOUT 120
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/preload.sh ${CMAKE_BINARY_DIR} forks ${case})
endforeach()
