# SPDX-License-Identifier: Apache-2.0
# The malloc family. Each program runs natively, with the library there but asleep, managed, and with a threshold that
# leaves small blocks to libc: the same checks hold in all of them.
set(heap_library $<TARGET_FILE:tiermesh-preload-plain>)

# heap_modes(NAME program [arguments])
function(heap_modes name)
    tiermesh_test(NAME heap_${name}_inert COMMAND ${ARGN} LABELS shim ENVIRONMENT LD_PRELOAD=${heap_library})
    tiermesh_test(NAME heap_${name}_managed COMMAND ${ARGN} LABELS shim
        ENVIRONMENT LD_PRELOAD=${heap_library} DSM_PRELOAD=1 EXPECT_MANAGED=1)
    tiermesh_test(NAME heap_${name}_threshold COMMAND ${ARGN} LABELS shim
        ENVIRONMENT LD_PRELOAD=${heap_library} DSM_PRELOAD=1 DSM_PRELOAD_MALLOC_THRESHOLD=1024)
endfunction()

set(heap_check ${CMAKE_CURRENT_LIST_DIR}/check.c)
tiermesh_test(NAME heap_family SOURCES family.c ${heap_check} LABELS shim)
tiermesh_test(NAME heap_threads SOURCES threads.c ${heap_check} LABELS shim ARGS 1)
tiermesh_test(NAME heap_forks SOURCES forks.c ${heap_check} LABELS shim ARGS 20)
add_library(heap_module MODULE ${CMAKE_CURRENT_LIST_DIR}/module.c)
tiermesh_test(NAME heap_libraries SOURCES libraries.c ${heap_check} LABELS shim ARGS $<TARGET_FILE:heap_module>)
tiermesh_test(NAME heap_operators SOURCES operators.cpp ${heap_check} LABELS shim)
set_target_properties(heap_operators PROPERTIES CXX_STANDARD 17)
add_dependencies(heap_libraries heap_module)

# Over the runtime, with a budget that everything outgrows.
function(heap_evicting name)
    tiermesh_test(NAME heap_${name}_evicting COMMAND ${ARGN} LABELS shim TIMEOUT 120
        ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:tiermesh-preload> DSM_PRELOAD=1 DSM_DDR=8M DSM_CXL=1G EXPECT_MANAGED=1
        EXPECT_EVICTIONS=1)
endfunction()

heap_modes(family heap_family)
tiermesh_test(NAME heap_fixed SOURCES family.c ${heap_check} LABELS shim)
target_compile_options(heap_fixed PRIVATE -fno-pic -fno-pie)
target_link_options(heap_fixed PRIVATE -no-pie)
set_target_properties(heap_fixed PROPERTIES POSITION_INDEPENDENT_CODE OFF)
heap_modes(fixed heap_fixed)
heap_modes(threads heap_threads 3)
heap_modes(libraries heap_libraries $<TARGET_FILE:heap_module>)
heap_modes(operators heap_operators)
heap_modes(forks heap_forks 50)
tiermesh_test(NAME heap_forks_2000 COMMAND heap_forks 250 8 LABELS shim TIMEOUT 120
    ENVIRONMENT LD_PRELOAD=${heap_library} DSM_PRELOAD=1 EXPECT_MANAGED=1)

# Other libraries in front and behind, at start.
add_library(heap_open_calls SHARED ${CMAKE_CURRENT_LIST_DIR}/hooks_open_calls.c)
tiermesh_test(NAME heap_start LABELS shim TIMEOUT 120
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/start.sh ${heap_library} $<TARGET_FILE:heap_open_calls>
    $<TARGET_FILE:heap_libraries> $<TARGET_FILE:heap_module>)
foreach(target heap_module heap_open_calls)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
        C_VISIBILITY_PRESET default)
endforeach()

heap_evicting(family heap_family)
heap_evicting(threads heap_threads 3)
heap_evicting(libraries heap_libraries $<TARGET_FILE:heap_module>)
heap_evicting(operators heap_operators)
heap_evicting(forks heap_forks 20)
