# SPDX-License-Identifier: Apache-2.0
# dsmrun with ordinary programs: one test a case of dsmrun.sh.
if(NOT TARGET dsmrun)
    return()
endif()

tiermesh_test_program(e2e_meet SOURCES ${CMAKE_CURRENT_LIST_DIR}/meet.c USES tm_agent)
foreach(case exit_status usage environment output input signals timeout failure orphans hosts meet)
    tiermesh_test(NAME e2e_dsmrun_${case} LABELS e2e TIMEOUT 60
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/dsmrun.sh $<TARGET_FILE:dsmrun> ${case} $<TARGET_FILE:e2e_meet>)
endforeach()
