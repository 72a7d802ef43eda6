# SPDX-License-Identifier: Apache-2.0
# Jobs of several nodes through the public interface. Each program starts a job for each of its cases under dsmrun; the
# same programs run again over other transports and event loops, and with delays and cuts in the fabric.
if(NOT TARGET tiermesh OR NOT TARGET dsmrun)
    message(STATUS "tests of whole nodes are left out: the runtime or dsmrun has no sources")
    return()
endif()

# Programs of several nodes share memory that the thread sanitizer sees from one side only: what a store of another node
# orders looks like a race to it. They run there on request; the stress programs, of one node, always do.
option(TIERMESH_TSAN_NODES "run the jobs of several nodes under the thread sanitizer too" OFF)
set(nodes_labels e2e)
if(TIERMESH_TSAN_NODES)
    list(APPEND nodes_labels threads)
endif()

set(nodes_support ${CMAKE_SOURCE_DIR}/tests/support/node_test.c)

# nodes_program(name [USES library ...] [TIMEOUT seconds] [LABELS label ...])
function(nodes_program name)
    cmake_parse_arguments(NODES "" "TIMEOUT" "USES;LABELS" ${ARGN})
    tiermesh_test(NAME e2e_${name} SOURCES e2e_${name}.c ${nodes_support} USES tiermesh ${NODES_USES}
        LABELS ${nodes_labels} ${NODES_LABELS} TIMEOUT ${NODES_TIMEOUT})
    add_dependencies(e2e_${name} dsmrun)
endfunction()

# nodes_again(name variant TIMEOUT NAME=VALUE ... CASES case ...): the same program with other options, perhaps in part.
function(nodes_again name variant timeout)
    cmake_parse_arguments(AGAIN "" "" "CASES;LABELS" ${ARGN})
    set(settings)
    foreach(setting ${AGAIN_UNPARSED_ARGUMENTS})
        list(APPEND settings --set ${setting})
    endforeach()
    tiermesh_test(NAME e2e_${name}_${variant} COMMAND e2e_${name} ${settings} ${AGAIN_CASES}
        LABELS e2e ${AGAIN_LABELS} TIMEOUT ${timeout})
endfunction()

nodes_program(memory TIMEOUT 120)
nodes_program(transfer TIMEOUT 120)
nodes_program(locks TIMEOUT 120)
nodes_program(syscalls TIMEOUT 120 USES PkgConfig::URING)
# A death by SIGBUS, which some cases expect, is another exit under the thread sanitizer; stress_paging runs there.
nodes_program(tiers TIMEOUT 240 LABELS notsan)
nodes_program(zmem TIMEOUT 240 LABELS notsan)
nodes_program(coherence TIMEOUT 240)
nodes_program(faults TIMEOUT 120)
# The thread sanitizer keeps most addresses to itself and ends a process that asks for them; start is about addresses.
nodes_program(start TIMEOUT 60 LABELS notsan)

set(memory_cases same_pointer_3 zeroes_again_3 free_from_any_node_3 roots_3 stats_3)
set(transfer_cases alignments_3 bulk_of_mixed_pages crosswise nowait_3 pins)
set(locks_cases exclusive_3 shared timeouts first_come_first_served producer_consumer barriers_3 atomics_3)
set(coherence_cases records_3 mixed_records_3 straddle message_passing)
foreach(name memory transfer locks coherence)
    nodes_again(${name} tcp 120 transport=tcp CASES ${${name}_cases})
    nodes_again(${name} tcp_epoll 120 transport=tcp loop=epoll CASES ${${name}_cases} LABELS long)
    nodes_again(${name} shm_epoll 120 transport=shm loop=epoll CASES ${${name}_cases})
    nodes_again(${name} tcp_faulty 120 transport=tcp faulty=7 CASES ${${name}_cases})
    nodes_again(${name} shm_faulty 120 transport=shm faulty=11 CASES ${${name}_cases} LABELS long)
endforeach()
# Memory that hosts share, a file in place of it.
foreach(name memory transfer locks coherence)
    tiermesh_test(NAME e2e_${name}_pool LABELS e2e TIMEOUT 120
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/pool.sh $<TARGET_FILE:e2e_${name}> ${${name}_cases})
endforeach()
tiermesh_test(NAME e2e_faults_pool LABELS e2e TIMEOUT 120
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/pool.sh $<TARGET_FILE:e2e_faults>
    owner_killed home_killed lock_holder_killed killed_at_barrier keeper_killed)
nodes_again(faults tcp 120 transport=tcp
    CASES owner_killed home_killed lock_holder_killed killed_at_barrier keeper_killed)
nodes_again(coherence long 420 CASES records_long LABELS long)
nodes_again(coherence long_faulty 420 transport=tcp faulty=5 CASES records_long LABELS long)
