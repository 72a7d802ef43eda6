# SPDX-License-Identifier: Apache-2.0
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
