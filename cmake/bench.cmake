# SPDX-License-Identifier: Apache-2.0
# The benchmarks: one program a question, run by bench/SUITE.sh. As tests they only show that they run (--quick): a bar
# that is missed is a figure, not a failure.
if(NOT TARGET tiermesh OR NOT TARGET dsmrun)
    return()
endif()

set(bench ${CMAKE_SOURCE_DIR}/bench)
add_library(tm_bench STATIC ${bench}/bare.c ${bench}/raw.c ${bench}/report.c ${bench}/setup.c ${bench}/touch.c)
target_link_libraries(tm_bench PUBLIC tm_base tiermesh PkgConfig::URING)
target_include_directories(tm_bench PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)

set(bench_single local_fault resident sequential)
set(bench_pair remote_fault lock_handover bulk_read)
set(bench_rig rig_fault rig_calls)
foreach(name ${bench_single} ${bench_pair} ${bench_rig})
    add_executable(bench_${name} ${bench}/${name}.c)
    target_link_libraries(bench_${name} PRIVATE tm_bench)
    set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()

# The fabric without the runtime, but on its loop.
add_executable(bench_rig_message ${bench}/rig_message.c ${CMAKE_SOURCE_DIR}/runtime/loop_core.c
    ${CMAKE_SOURCE_DIR}/runtime/loop_epoll.c ${CMAKE_SOURCE_DIR}/runtime/loop_uring.c)
target_link_libraries(bench_rig_message PRIVATE tm_bench tm_fabric)
set_target_properties(bench_rig_message PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)

# Programs that know nothing of Tiermesh, alone and under the preload library, or beside it.
foreach(name pattern disk placement redis_load)
    add_executable(bench_${name} ${bench}/${name}.c)
    target_include_directories(bench_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(bench_${name} PRIVATE Threads::Threads m)
    set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()
target_sources(bench_pattern PRIVATE ${bench}/walkers.c)
target_sources(bench_disk PRIVATE ${bench}/walkers.c)
add_executable(bench_rivals ${bench}/rivals.c)
target_link_libraries(bench_rivals PRIVATE tm_bench)
set_target_properties(bench_rivals PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)

if(TARGET tiermesh-preload)
    add_executable(bench_alloc_heavy ${bench}/alloc_heavy.c)
    target_link_libraries(bench_alloc_heavy PRIVATE Threads::Threads)
    add_executable(bench_malloc ${bench}/malloc.c)
    target_link_libraries(bench_malloc PRIVATE tm_bench)
    set_target_properties(bench_alloc_heavy bench_malloc PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()

# Serial: they place themselves on both processors.
if(NOT BUILD_TESTING OR TIERMESH_SANITIZE)
    return()
endif()
foreach(name ${bench_single})
    tiermesh_test(NAME bench_${name}_quick LABELS bench TIMEOUT 60 SERIAL
        COMMAND bench_${name} --quick --directory ${CMAKE_BINARY_DIR})
endforeach()
if(TARGET tiermesh-preload)
    tiermesh_test(NAME bench_malloc_quick LABELS bench TIMEOUT 60 SERIAL
        COMMAND bench_malloc --quick $<TARGET_FILE:bench_alloc_heavy>
        env DSM_PRELOAD=1 DSM_DDR=1G LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)
endif()
foreach(name ${bench_pair})
    foreach(transport shm tcp)
        tiermesh_test(NAME bench_${name}_${transport}_quick LABELS bench TIMEOUT 60 SERIAL
            COMMAND dsmrun -n 2 --timeout 50 --transport ${transport}
            $<TARGET_FILE:bench_${name}> --quick --transport ${transport})
    endforeach()
endforeach()
