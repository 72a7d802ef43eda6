# SPDX-License-Identifier: Apache-2.0
# dsmrun --record with ordinary programs, and the replay of what they leave: one test a case of record.sh.
if(NOT TARGET tiermesh-preload OR NOT TARGET dsmrun OR NOT TARGET tiermesh-replay)
    return()
endif()

add_executable(e2e_plain_touches ${CMAKE_CURRENT_LIST_DIR}/plain_touches.c)
set_target_properties(e2e_plain_touches PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
foreach(case counts forks programs killed full nodes refusals)
    tiermesh_test(NAME e2e_record_${case} LABELS e2e TIMEOUT 120
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/record.sh ${CMAKE_BINARY_DIR} ${case})
endforeach()
