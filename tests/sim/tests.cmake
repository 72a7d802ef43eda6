# SPDX-License-Identifier: Apache-2.0
# Simulators: the cluster's tables; coherence/ on simulated nodes; the explorer; and the planted bugs they must catch.

# cluster/ on its own simulated nodes, and a planted bug for each of its checkers.
tiermesh_test(NAME dsm_sim_cluster SOURCES cluster_sim.c USES tm_cluster tm_base LABELS sim TIMEOUT 60
    ARGS --seed=1 --seeds=100000 --seconds=5)
set(planted progress replicas answers barrier names extents)
set(number 0)
foreach(checker ${planted})
    math(EXPR number "${number} + 1")
    if(TARGET dsm_sim_cluster)
        tiermesh_test(NAME sim_cluster_planted_${checker} COMMAND dsm_sim_cluster --mutant=${number} --seeds=200
            --expect=${checker} LABELS sim TIMEOUT 60)
    endif()
endforeach()

if(NOT EXISTS ${CMAKE_SOURCE_DIR}/coherence/coherence.c)
    return()
endif()

set(SIM_SOURCES calls.c check_atomics.c check_directory.c check_locks.c check_progress.c check_reads.c check_writers.c
    faults.c locking.c memory.c net.c processor.c tokens.c trace.c world.c)
set(SIM_SMALL WORLD_NODES_MAX=3 WORLD_EXTENTS_MAX=2 WORLD_EXTENT_PAGES=1 WORLD_THREADS_MAX=3 WORLD_MESSAGES_MAX=64
    WORLD_EVENTS_MAX=32 WORLD_TOKENS_MAX=12 WORLD_SENDS_MAX=1 WORLD_HELD_MAX=4 WORLD_DEATHS_MAX=4)

# The world is the same with every coherence/, and has two sizes: sim_world for seeds, sim_world_small to explore.
list(TRANSFORM SIM_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
foreach(world sim_world sim_world_small)
    add_library(${world} STATIC ${SIM_SOURCES})
    target_include_directories(${world} PRIVATE ${CMAKE_SOURCE_DIR})
endforeach()
target_compile_definitions(sim_world_small PRIVATE ${SIM_SMALL})

# Fresh seeds are a fixed range, so that a failure can be replayed; seeds.txt has those that failed once.
tiermesh_test(NAME dsm_sim SOURCES main.c USES sim_world tm_coherence tm_base LABELS sim TIMEOUT 60
    ARGS --file=${CMAKE_CURRENT_LIST_DIR}/seeds.txt --seed=1 --seeds=100000 --seconds=15)
tiermesh_test(NAME dsm_explore SOURCES explore.c USES sim_world_small tm_coherence tm_base PkgConfig::XXHASH
    DEFINITIONS ${SIM_SMALL} LABELS sim TIMEOUT 60 ARGS --seconds=20)

# Bugs planted in the simulated environment: sim_environment_<number>, caught by one of the checkers named.
function(sim_environment number)
    string(REPLACE ";" "," checkers "${ARGN}")
    if(TARGET dsm_sim)
        tiermesh_test(NAME sim_environment_${number} COMMAND dsm_sim --mutant=${number} --seeds=300 --expect=${checkers}
            LABELS sim TIMEOUT 60)
    endif()
endfunction()

# Bugs planted in coherence/ (TIERMESH_MUTANT): its sources are built once more for each.
file(GLOB sim_coherence CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coherence/*.c)
function(sim_mutant number)
    string(REPLACE ";" "," checkers "${ARGN}")
    add_library(sim_coherence_${number} STATIC ${sim_coherence})
    target_include_directories(sim_coherence_${number} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(sim_coherence_${number} PRIVATE TIERMESH_MUTANT=${number})
    tiermesh_test(NAME sim_mutant_${number} SOURCES main.c USES sim_world sim_coherence_${number} tm_base
        LABELS sim TIMEOUT 60 ARGS --seed=2 --seeds=500 --expect=${checkers})
endfunction()

function(explore_mutant number)
    string(REPLACE ";" "," checkers "${ARGN}")
    tiermesh_test(NAME explore_mutant_${number} SOURCES explore.c
        USES sim_world_small sim_coherence_${number} tm_base PkgConfig::XXHASH DEFINITIONS ${SIM_SMALL}
        LABELS sim TIMEOUT 60 ARGS --seconds=20 --expect=${checkers})
endfunction()

# Nonsense between the nodes: no ASSERT may fail.
tiermesh_test(NAME sim_evil COMMAND dsm_sim --evil --seed=1 --seeds=100000 --seconds=5 LABELS sim TIMEOUT 60)

sim_environment(1 reads)
sim_environment(2 writers environment reads)
sim_environment(3 progress leaks)
sim_environment(4 atomics)
sim_environment(5 environment)
sim_environment(6 locks)
sim_environment(7 leaks)
sim_environment(8 directory)

sim_mutant(1 writers reads)
sim_mutant(2 writers environment)
sim_mutant(3 reads lost)
sim_mutant(4 locks)
sim_mutant(5 progress)
sim_mutant(6 writers reads lost)
sim_mutant(7 progress)
sim_mutant(8 atomics)
explore_mutant(1 writers reads)
explore_mutant(2 writers environment)
