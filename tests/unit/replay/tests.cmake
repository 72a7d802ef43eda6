# SPDX-License-Identifier: Apache-2.0
# The reader of traces, the policies that ours are compared with, and the program over both.
foreach(stem trace caches)
    tiermesh_test(NAME test_replay_${stem} SOURCES test_${stem}.c USES tm_replay LABELS unit)
endforeach()
if(TARGET tiermesh-replay)
    tiermesh_test(NAME test_replay_program COMMAND ${CMAKE_CURRENT_LIST_DIR}/program.sh
        $<TARGET_FILE:tiermesh-replay> LABELS unit)
    tiermesh_test(NAME test_replay_program_long COMMAND ${CMAKE_CURRENT_LIST_DIR}/program_long.sh
        $<TARGET_FILE:tiermesh-replay> LABELS unit long noasan TIMEOUT 300)
endif()
